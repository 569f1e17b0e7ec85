/**
 * Registers: one row each, in the table that all strategies share. A change is one statement, which compares and writes;
 * whether it was refused it says with LAST_INSERT_ID, the only answer that does not depend on flags of the connection.
 */
import type { Fence, Fenced, RegisterEntry, Registers } from '../../core/engine.js';
import { isStale, newest } from '../../core/fence.js';
import { bytes, type Database, type Row, text, type Value } from './client.js';
import { NOW } from './tables.js';

/** For a token that is bound in each of these places. */
const MAY_WRITE = '(max_write <= ? AND max_read < ?)';
const MAY_READ = '(max_write < ?)';

export class MysqlRegisters implements Registers {
  readonly #database: Database;
  readonly #namespace: Buffer;
  readonly #table: string;

  constructor(database: Database, namespace: string, prefix: string) {
    this.#database = database;
    this.#namespace = bytes(namespace);
    this.#table = `${prefix}register`;
  }

  async read(name: string, fence?: Fence): Promise<Fenced<RegisterEntry | undefined>> {
    if (fence) await this.#present(name, fence);
    const row = await this.#row(name);
    if (!row) return { ok: true, value: undefined };
    const [value, token, ageMs, maxRead, maxWrite] = row;
    const [read, wrote] = [BigInt(text(maxRead)), BigInt(text(maxWrite))];
    // Both only grow: whoever is not stale now was not stale when it presented its token.
    if (fence && isStale(fence, read, wrote)) return { ok: false, newest: newest(read, wrote) };
    if (value === null) return { ok: true, value: undefined };
    return { ok: true, value: { value: text(value), token: BigInt(text(token)), ageMs: Math.max(0, Number(ageMs)) } };
  }

  async write(name: string, value: string, t: bigint): Promise<Fenced<void>> {
    const { said } = await this.#database.change(
      `INSERT INTO ${this.#table} (namespace, name, value, token, written, max_read, max_write)
        VALUES (?, ?, ?, ?, ${NOW}, 0, ?)
        ON DUPLICATE KEY UPDATE
          written = IF(${MAY_WRITE}, ${NOW}, written + 0 * LAST_INSERT_ID(1)),
          value = IF(${MAY_WRITE}, ?, value),
          token = IF(${MAY_WRITE}, ?, token),
          max_write = IF(${MAY_WRITE}, ?, max_write)`,
      [...this.#key(name), bytes(value), t, t, t, t, t, t, bytes(value), t, t, t, t, t, t],
    );
    if (said === 0) return { ok: true, value: undefined };
    const [, , , maxRead, maxWrite] = (await this.#row(name))!;
    return { ok: false, newest: newest(BigInt(text(maxRead)), BigInt(text(maxWrite))) };
  }

  async #present(name: string, { mode, token: t }: Fence): Promise<void> {
    const insert = `INSERT INTO ${this.#table} (namespace, name, value, token, written, max_read, max_write)
      VALUES (?, ?, NULL, 0, 0, ?, ?) ON DUPLICATE KEY UPDATE`;
    if (mode === 'read')
      await this.#database.change(`${insert} max_read = IF(${MAY_READ}, GREATEST(max_read, ?), max_read)`, [
        ...this.#key(name),
        ...[t, 0, t, t],
      ]);
    else
      await this.#database.change(`${insert} max_write = IF(${MAY_WRITE}, ?, max_write)`, [
        ...this.#key(name),
        ...[0, t, t, t, t],
      ]);
  }

  async #row(name: string): Promise<Row | undefined> {
    const columns = `value, CAST(token AS CHAR), CAST((${NOW} - written) DIV 1000 AS CHAR), CAST(max_read AS CHAR), CAST(max_write AS CHAR)`;
    const sql = `SELECT ${columns} FROM ${this.#table} WHERE namespace = ? AND name = ?`;
    return (await this.#database.rows(sql, this.#key(name)))[0];
  }

  #key(name: string): readonly Value[] {
    return [this.#namespace, bytes(name)];
  }
}
