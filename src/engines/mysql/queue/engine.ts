/**
 * The strategy `queue`: the procedures of protocol.ts, called; or what statements.ts does in their stead.
 *
 *     enter ─▶ procedure ─▶ held            one round trip
 *              procedure ─▶ waiting ┄┄ leave of another: procedure grants ┄┄ our poll ─▶ held
 */
import type {
  Engine,
  EngineLine,
  EngineSetup,
  LineQuery,
  OpenOptions,
  Session,
  SessionListener,
} from '../../../core/engine.js';
import { callMs } from '../client/database.js';
import { bytes, text } from '../client/port.js';
import { MysqlRegisters } from '../registers.js';
import { NOW } from '../tables.js';
import { listLines } from './listing.js';
import { Poll } from './poll.js';
import { buryTheDead, type QueueTables } from './protocol.js';
import { QueueSession } from './session.js';
import { LineSweeper } from './sweeper.js';

export class QueueEngine implements Engine {
  readonly registers: MysqlRegisters;
  readonly #tables: QueueTables;
  readonly #poll: Poll;
  readonly #sweeper: LineSweeper;

  constructor(tables: Pick<QueueTables, 'database' | 'prefix' | 'steps'>, { namespace, clock }: EngineSetup) {
    this.#tables = { ...tables, namespace: bytes(namespace), clock };
    this.registers = new MysqlRegisters(tables.database, namespace, tables.prefix);
    this.#poll = new Poll(this.#tables);
    this.#sweeper = new LineSweeper(this.#tables, this.registers);
  }

  async open(options: OpenOptions, listener: SessionListener): Promise<Session> {
    const { database, prefix, namespace } = this.#tables;
    const ttl = Math.round(options.ttlMs * 1_000);
    await database.change(
      `INSERT INTO ${prefix}session VALUES (?, ?, ?, ${NOW} + ?)`,
      [bytes(options.id), namespace, ttl, ttl],
      { withinMs: callMs(options.ttlMs), urgent: true },
    );
    return new QueueSession({ tables: this.#tables, poll: this.#poll, sweeper: this.#sweeper, options, listener });
  }

  async *inspect(query: LineQuery): AsyncIterable<EngineLine> {
    await buryTheDead(this.#tables);
    yield* listLines(this.#tables, query);
  }

  async evict(name: string, claimId: string, reason: string): Promise<boolean> {
    const { database, prefix: p, namespace } = this.#tables;
    // Found without a lock and changed by its primary key: a search that locks would stand in the way of the line.
    const [found] = await database.rows(
      `SELECT kind, CAST(token AS CHAR) FROM ${p}claim WHERE namespace = ? AND kind IN (0, 1) AND name = ? AND id = ?`,
      [namespace, bytes(name), bytes(claimId)],
    );
    if (!found) return false;
    const { found: changed } = await database.change(
      `UPDATE ${p}claim SET evicted = ?, news = ${NOW} WHERE namespace = ? AND kind = ? AND name = ? AND token = ?`,
      [bytes(reason), namespace, Number(found[0]), bytes(name), BigInt(text(found[1]))],
    );
    return changed > 0;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#poll.close();
    await this.#tables.database.close();
  }
}
