/** A session of the `queue` strategy: each call is a step of protocol.ts; what others did to its claims, the poll tells. */
import type {
  Claim,
  ClaimRef,
  IndexedClaim,
  LineRef,
  OpenOptions,
  Place,
  Pulse,
  Roster,
  Session,
  SessionListener,
} from '../../../core/engine.js';
import { Awaited } from '../../../kit/awaited.js';
import { type CallOptions, callMs } from '../client/database.js';
import { bytes, type Row, text } from '../client/port.js';
import type { Poll, PolledSession } from './poll.js';
import { type ClaimKey, KINDS, type QueueTables } from './protocol.js';
import type { LineSweeper } from './sweeper.js';

export interface QueueSessionSetup {
  readonly tables: QueueTables;
  readonly poll: Poll;
  readonly sweeper: LineSweeper;
  readonly options: OpenOptions;
  readonly listener: SessionListener;
}

export class QueueSession implements Session, PolledSession {
  readonly ttlMs: number;
  readonly key: Buffer;
  readonly #setup: QueueSessionSetup;
  readonly #options: CallOptions;
  readonly #awaited: Awaited;

  constructor(setup: QueueSessionSetup) {
    this.#setup = setup;
    this.#awaited = new Awaited(setup.listener);
    this.ttlMs = setup.options.ttlMs;
    this.key = bytes(setup.options.id);
    this.#options = { withinMs: callMs(this.ttlMs) };
  }

  get waits(): boolean {
    return this.#awaited.size > 0;
  }

  async enter({ id, line, serial, weight, capacity, wait, note }: Claim): Promise<Place> {
    const { tables, poll } = this.#setup;
    if (wait) this.#awaited.add(id);
    const [row] = await tables.steps(
      'enter_3',
      [...this.#claim(id, line), serial, weight, capacity, wait ? 1 : 0, bytes(note)],
      this.#options,
    );
    const place = placeOf(row!);
    if (place.state === 'waiting') poll.watch(this);
    else this.#awaited.delete(id);
    return place;
  }

  async leave({ id, line }: ClaimRef): Promise<boolean> {
    const { tables, poll } = this.#setup;
    this.#awaited.delete(id);
    const [row] = await tables.steps('leave_2', this.#claim(id, line), this.#options);
    // It may have been granted to ourselves.
    if (Number(row![1]) === 1) poll.hurry();
    return Number(row![0]) === 1;
  }

  async reweigh({ id, line, weight }: Claim): Promise<void> {
    await this.#setup.tables.steps('reweigh_2', [...this.#claim(id, line), weight], this.#options);
    this.#setup.poll.hurry();
  }

  async beat(roster: Roster): Promise<Pulse> {
    const { tables, sweeper } = this.#setup;
    const unsettled = bytes(roster.unsettled.join(','));
    const options = { ...this.#options, urgent: true };
    const [row] = await tables.steps('beat_1', [this.key, tables.namespace, unsettled], options);
    if (!row) return { alive: false };
    const [count, held, checksum, evicted, dead] = row.map(Number);
    if (evicted === 1) await this.#tellEvictions();
    sweeper.sweep(dead === 1);
    const matches = count === roster.count && held === roster.held && checksum === roster.checksum;
    return matches ? { alive: true } : { alive: true, index: await this.#index() };
  }

  async close(): Promise<void> {
    this.#awaited.clear();
    this.#setup.poll.forget(this);
    await this.#setup.tables.steps('bury_2', [this.key, 1], {});
  }

  news(id: string, token: bigint | undefined, evicted: string | undefined): void {
    if (evicted !== undefined) this.#awaited.evicted(id, evicted);
    else if (token !== undefined) this.#awaited.granted(id, token);
  }

  async #tellEvictions(): Promise<void> {
    const { database, prefix } = this.#setup.tables;
    const rows = await database.rows(
      `SELECT id, evicted FROM ${prefix}claim WHERE session = ? AND evicted IS NOT NULL`,
      [this.key],
      { urgent: true },
    );
    for (const [id, reason] of rows) this.#awaited.evicted(text(id), text(reason));
  }

  async #index(): Promise<readonly IndexedClaim[]> {
    const { database, prefix } = this.#setup.tables;
    const rows = await database.rows(
      `SELECT id, kind, name, held, CAST(token AS CHAR) FROM ${prefix}claim WHERE session = ?`,
      [this.key],
      { urgent: true },
    );
    return rows.map(([id, kind, name, held, token]) => ({
      id: text(id),
      line: { kind: KINDS[Number(kind)]!, name: text(name) },
      state: Number(held) === 1 ? 'held' : 'waiting',
      token: BigInt(text(token)),
    }));
  }

  #claim(id: string, { kind, name }: LineRef): ClaimKey {
    return [this.key, bytes(id), this.#setup.tables.namespace, KINDS.indexOf(kind), bytes(name)];
  }
}

function placeOf([state, figure]: Row): Place {
  switch (text(state)) {
    case 'held':
      return { state: 'held', token: BigInt(text(figure)) };
    case 'waiting':
      return { state: 'waiting' };
    case 'refused':
      return { state: 'refused' };
    case 'mismatch':
      return { state: 'mismatch', capacity: Number(figure) };
    default:
      return { state: 'gone' };
  }
}
