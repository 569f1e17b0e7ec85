/**
 * The strategy `queue`: the procedures of protocol.ts, called; or what statements.ts does in their stead.
 *
 *     enter ─▶ procedure ─▶ held            one round trip
 *              procedure ─▶ waiting ┄┄ leave of another: procedure grants ┄┄ our poll ─▶ held
 *
 * MySQL can't push, so an instance with waiting claims asks for news: one question for all of them, however many there
 * are, at first every few milliseconds and more rarely when nothing happens. It also asks whether somebody is dead.
 */
import type { Clock, Timer } from '../../../core/clock.js';
import type {
  Claim,
  ClaimRef,
  Engine,
  EngineClaim,
  EngineLine,
  EngineSetup,
  IndexedClaim,
  LineKind,
  LineQuery,
  LineRef,
  OpenOptions,
  Place,
  Pulse,
  Roster,
  Session,
  SessionListener,
} from '../../../core/engine.js';
import { Awaited } from '../../../kit/awaited.js';
import { bytes, type CallOptions, callMs, type Database, type Row, text, type Value } from '../client/database.js';
import type { Steps } from './protocol.js';
import { MysqlRegisters } from '../registers.js';
import { NOW } from '../tables.js';

const POLL_FIRST_MS = 4;
const POLL_MOST_MS = 50;
/** News may be committed later than they are dated: so much is asked for again. What is later still, a beat finds. */
const NEWS_OVERLAP_US = 5_000_000;
const CLEAN_CHUNK = 1_000;
/** Not at once: a line that is used again and again would be made again and again. */
const CLEAN_IDLE_US = 5_000_000;
const CLEAN_EVERY_MS = 5_000;
const CLEAN_CHUNKS = 50;

const KINDS: readonly LineKind[] = ['lock', 'semaphore'];

export interface QueueSetup {
  readonly database: Database;
  readonly prefix: string;
  /** By procedures, or by plain statements. */
  readonly steps: Steps;
}

export class QueueEngine implements Engine {
  readonly registers: MysqlRegisters;
  readonly database: Database;
  readonly namespace: Buffer;
  readonly prefix: string;
  readonly clock: Clock;
  /** Carries out a step of the protocol. */
  readonly call: Steps;
  readonly #poll: Poll;
  readonly #sweeper: Sweeper;

  constructor({ database, prefix, steps }: QueueSetup, { namespace, clock }: EngineSetup) {
    this.database = database;
    this.prefix = prefix;
    this.call = steps;
    this.namespace = bytes(namespace);
    this.clock = clock;
    this.registers = new MysqlRegisters(database, namespace, prefix);
    this.#poll = new Poll(this);
    this.#sweeper = new Sweeper(this);
  }

  async open(options: OpenOptions, listener: SessionListener): Promise<Session> {
    const ttl = Math.round(options.ttlMs * 1_000);
    await this.database.change(
      `INSERT INTO ${this.prefix}session VALUES (?, ?, ?, ${NOW} + ?)`,
      [bytes(options.id), this.namespace, ttl, ttl],
      { withinMs: callMs(options.ttlMs), urgent: true },
    );
    return new QueueSession({ engine: this, poll: this.#poll, sweeper: this.#sweeper, options, listener });
  }

  async *inspect({ name, prefix = '' }: LineQuery): AsyncIterable<EngineLine> {
    await this.reap();
    const p = this.prefix;
    // Every name that begins so lies before the prefix with its highest possible continuation.
    const [where, values] =
      name === undefined
        ? ['c.name >= ? AND c.name < ?', [bytes(prefix), Buffer.concat([bytes(prefix), Buffer.alloc(512, 0xff)])]]
        : ['c.name = ? AND c.name >= ?', [bytes(name), bytes(name.startsWith(prefix) ? '' : `${name}-`)]];
    const rows = await this.database.rows(
      `SELECT c.kind, c.name, CAST(l.capacity AS CHAR), c.id, c.held, CAST(c.weight AS CHAR), CAST(c.token AS CHAR),
          CAST(c.since DIV 1000 AS CHAR), c.note
        FROM ${p}claim c JOIN ${p}line l ON l.namespace = c.namespace AND l.kind = c.kind AND l.name = c.name
        WHERE c.namespace = ? AND c.kind IN (0, 1) AND ${where} ORDER BY c.kind, c.name, c.token`,
      [this.namespace, ...values],
    );
    for (let at = 0; at < rows.length;) {
      const [kind, lineName, capacity] = rows[at]!;
      const claims: EngineClaim[] = [];
      const isHere = (row: Row | undefined): row is Row =>
        row !== undefined && row[0] === kind && text(row[1]) === text(lineName);
      for (let row = rows[at]; isHere(row); row = rows[at]) {
        claims.push(viewed(row));
        at += 1;
      }
      yield { kind: KINDS[Number(kind)]!, name: text(lineName), capacity: Number(capacity), claims };
    }
  }

  async evict(name: string, claimId: string, reason: string): Promise<boolean> {
    const p = this.prefix;
    // Found without a lock and changed by its primary key: a search that locks would stand in the way of the line.
    const [found] = await this.database.rows(
      `SELECT kind, CAST(token AS CHAR) FROM ${p}claim WHERE namespace = ? AND kind IN (0, 1) AND name = ? AND id = ?`,
      [this.namespace, bytes(name), bytes(claimId)],
    );
    if (!found) return false;
    const { found: changed } = await this.database.change(
      `UPDATE ${p}claim SET evicted = ?, news = ${NOW} WHERE namespace = ? AND kind = ? AND name = ? AND token = ?`,
      [bytes(reason), this.namespace, Number(found[0]), bytes(name), BigInt(text(found[1]))],
    );
    return changed > 0;
  }

  async reap(): Promise<void> {
    await this.call('reap_1', [this.namespace], {});
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#poll.close();
    await this.database.close();
  }
}

interface SessionSetup {
  readonly engine: QueueEngine;
  readonly poll: Poll;
  readonly sweeper: Sweeper;
  readonly options: OpenOptions;
  readonly listener: SessionListener;
}

class QueueSession implements Session {
  readonly ttlMs: number;
  readonly key: Buffer;
  readonly #setup: SessionSetup;
  readonly #options: CallOptions;
  readonly #awaited: Awaited;

  constructor(setup: SessionSetup) {
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
    const { engine, poll } = this.#setup;
    if (wait) this.#awaited.add(id);
    const values = [...this.#claim(id, line), serial, weight, capacity, wait ? 1 : 0, bytes(note)];
    const [row] = await engine.call('enter_1', values, this.#options);
    const place = placeOf(row!);
    if (place.state === 'waiting') poll.watch(this);
    else this.#awaited.delete(id);
    return place;
  }

  async leave({ id, line }: ClaimRef): Promise<boolean> {
    const { engine, poll } = this.#setup;
    this.#awaited.delete(id);
    const [row] = await engine.call('leave_1', this.#claim(id, line), this.#options);
    // It may have been granted to ourselves.
    if (Number(row![1]) === 1) poll.hurry();
    return Number(row![0]) === 1;
  }

  async reweigh({ id, line, weight }: Claim): Promise<void> {
    await this.#setup.engine.call('reweigh_1', [...this.#claim(id, line), weight], this.#options);
    this.#setup.poll.hurry();
  }

  async beat(roster: Roster): Promise<Pulse> {
    const { engine, sweeper } = this.#setup;
    const values = [this.key, engine.namespace, bytes(roster.unsettled.join(','))];
    const [row] = await engine.call('beat_1', values, { ...this.#options, urgent: true });
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
    await this.#setup.engine.call('bury_1', [this.key, 1], {});
  }

  /** What another did to one of ours. It is told again and again for a while. */
  news(id: string, token: bigint | undefined, evicted: string | undefined): void {
    if (evicted !== undefined) this.#awaited.evicted(id, evicted);
    else if (token !== undefined) this.#awaited.granted(id, token);
  }

  async #tellEvictions(): Promise<void> {
    const { engine } = this.#setup;
    const rows = await engine.database.rows(
      `SELECT id, evicted FROM ${engine.prefix}claim WHERE session = ? AND evicted IS NOT NULL`,
      [this.key],
      { urgent: true },
    );
    for (const [id, reason] of rows) this.#awaited.evicted(text(id), text(reason));
  }

  async #index(): Promise<readonly IndexedClaim[]> {
    const { engine } = this.#setup;
    const rows = await engine.database.rows(
      `SELECT id, kind, name, held, CAST(token AS CHAR) FROM ${engine.prefix}claim WHERE session = ?`,
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

  #claim(id: string, { kind, name }: LineRef): readonly Value[] {
    return [this.key, bytes(id), this.#setup.engine.namespace, KINDS.indexOf(kind), bytes(name)];
  }
}

/** One question for all waiting claims of an instance. */
class Poll {
  readonly #engine: QueueEngine;
  readonly #sessions = new Set<QueueSession>();
  #timer: Timer | undefined;
  #pauseMs = POLL_FIRST_MS;
  #asking = false;
  #again = false;
  /** Since when, by the server's clock: it may be set back, so this is what it said last and not the most it ever said. */
  #since = 0n;
  #closed = false;

  constructor(engine: QueueEngine) {
    this.#engine = engine;
  }

  watch(session: QueueSession): void {
    this.#sessions.add(session);
    this.#schedule();
  }

  forget(session: QueueSession): void {
    this.#sessions.delete(session);
  }

  /** Something has just happened. */
  hurry(): void {
    if (!this.#waits()) return;
    this.#again = this.#asking;
    if (!this.#asking) void this.#ask();
  }

  close(): void {
    this.#closed = true;
    this.#timer?.close();
  }

  #waits(): boolean {
    return [...this.#sessions].some((session) => session.waits);
  }

  #schedule(): void {
    if (this.#timer || this.#asking || this.#closed) return;
    if (!this.#waits()) {
      this.#pauseMs = POLL_FIRST_MS;
      return;
    }
    const { clock } = this.#engine;
    this.#timer = clock.timer(this.#pauseMs * (0.75 + clock.random() / 2), () => void this.#ask());
    this.#timer.unref();
    this.#pauseMs = Math.min(POLL_MOST_MS, this.#pauseMs * 1.3);
  }

  async #ask(): Promise<void> {
    this.#timer?.close();
    this.#timer = undefined;
    this.#asking = true;
    const { clock } = this.#engine;
    const askedAt = clock.now();
    try {
      do {
        this.#again = false;
        await this.#look();
      } while (this.#again);
      // A server that is slow is asked more rarely: at most a fifth of the time goes into questions.
      this.#pauseMs = Math.min(POLL_MOST_MS, Math.max(this.#pauseMs, 4 * (clock.now() - askedAt)));
    } catch {
      // A look that failed is made again; what is really wrong shows in the calls.
      this.#pauseMs = POLL_MOST_MS;
    } finally {
      this.#asking = false;
      this.#schedule();
    }
  }

  async #look(): Promise<void> {
    const { database, prefix: p, namespace } = this.#engine;
    const sessions = [...this.#sessions].filter((session) => session.waits);
    if (sessions.length === 0) return;
    const keys = sessions.map(({ key }) => key);
    const rows = await database.rows(
      `SELECT session, id, held, CAST(token AS CHAR), evicted FROM ${p}claim
          WHERE session IN (${keys.map(() => '?').join(', ')}) AND news > ?
        UNION ALL SELECT NULL, NULL, EXISTS (SELECT 1 FROM ${p}session WHERE namespace = ? AND expires <= ${NOW}),
          CAST(${NOW} AS CHAR), NULL`,
      [...keys, this.#since, namespace],
    );
    for (const [key, id, held, token, evicted] of rows) {
      if (key === null) await this.#looked(Number(held) === 1, BigInt(text(token)));
      else
        sessions
          .find((session) => session.key.equals(key as Buffer))
          ?.news(
            text(id),
            Number(held) === 1 ? BigInt(text(token)) : undefined,
            evicted === null ? undefined : text(evicted),
          );
    }
  }

  async #looked(somebodyIsDead: boolean, now: bigint): Promise<void> {
    this.#since = now - BigInt(NEWS_OVERLAP_US);
    if (!somebodyIsDead) return;
    await this.#engine.reap();
    this.#again = true;
  }
}

/** Buries the dead and deletes lines that nobody uses, after beats, in the background. */
class Sweeper {
  readonly #engine: QueueEngine;
  #sweeping = false;
  #cleanAt = 0;
  /** Where to go on, for each kind of line. */
  readonly #after: Buffer[] = KINDS.map(() => Buffer.alloc(0));

  constructor(engine: QueueEngine) {
    this.#engine = engine;
  }

  sweep(somebodyIsDead: boolean): void {
    const { clock } = this.#engine;
    const isTime = clock.now() >= this.#cleanAt;
    if (this.#sweeping || !(somebodyIsDead || isTime)) return;
    this.#sweeping = true;
    if (isTime) this.#cleanAt = clock.now() + CLEAN_EVERY_MS * (0.5 + clock.random());
    this.#run(isTime)
      .catch(() => {
        // The next beat goes on.
      })
      .finally(() => (this.#sweeping = false));
  }

  async #run(clean: boolean): Promise<void> {
    await this.#engine.reap();
    if (!clean) return;
    for (const kind of KINDS.keys()) await this.#clean(kind);
    await this.#engine.registers.forget();
  }

  async #clean(kind: number): Promise<void> {
    for (let chunk = 0; chunk < CLEAN_CHUNKS; chunk += 1) {
      const from = this.#after[kind]!;
      const values = [this.#engine.namespace, kind, from, CLEAN_CHUNK, CLEAN_IDLE_US];
      const [row] = await this.#engine.call('clean_1', values, {});
      const [until, deleted] = row!;
      this.#after[kind] = until === null ? Buffer.alloc(0) : (until as Buffer);
      if (until === null || Number(deleted) === 0) return;
    }
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

function viewed([, , , id, held, weight, token, since, note]: Row): EngineClaim {
  return {
    id: text(id),
    state: Number(held) === 1 ? 'held' : 'waiting',
    weight: Number(weight),
    token: BigInt(text(token)),
    since: Number(since),
    note: text(note),
  };
}
