/**
 * MySQL can't push, so an instance with waiting claims asks for news: one question for all of them, however many there
 * are, at first every few milliseconds and more rarely when nothing happens. It also asks whether somebody is dead.
 */
import type { Timer } from '../../../core/clock.js';
import { text } from '../client/port.js';
import { NOW } from '../tables.js';
import { buryTheDead, type QueueTables } from './protocol.js';

const FIRST_MS = 4;
const MOST_MS = 50;
/** News may be committed later than they are dated: so much is asked for again. What is later still, a beat finds. */
const OVERLAP_US = 5_000_000;

/** A session whose claims may wait. */
export interface PolledSession {
  readonly key: Buffer;
  readonly waits: boolean;
  /** What another did to one of its claims. It is told again and again for a while. */
  news(id: string, token: bigint | undefined, evicted: string | undefined): void;
}

export class Poll {
  readonly #tables: QueueTables;
  readonly #sessions = new Set<PolledSession>();
  #timer: Timer | undefined;
  #pauseMs = FIRST_MS;
  #asking = false;
  #again = false;
  /** Since when, by the server's clock: it may be set back, so this is what it said last and not the most it ever said. */
  #since = 0n;
  #closed = false;

  constructor(tables: QueueTables) {
    this.#tables = tables;
  }

  watch(session: PolledSession): void {
    this.#sessions.add(session);
    this.#schedule();
  }

  forget(session: PolledSession): void {
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
      this.#pauseMs = FIRST_MS;
      return;
    }
    const { clock } = this.#tables;
    this.#timer = clock.timer(this.#pauseMs * (0.75 + clock.random() / 2), () => void this.#ask());
    this.#timer.unref();
    this.#pauseMs = Math.min(MOST_MS, this.#pauseMs * 1.3);
  }

  async #ask(): Promise<void> {
    this.#timer?.close();
    this.#timer = undefined;
    this.#asking = true;
    const { clock } = this.#tables;
    const askedAt = clock.now();
    try {
      do {
        this.#again = false;
        await this.#look();
      } while (this.#again);
      // A server that is slow is asked more rarely: at most a fifth of the time goes into questions.
      this.#pauseMs = Math.min(MOST_MS, Math.max(this.#pauseMs, 4 * (clock.now() - askedAt)));
    } catch {
      // A look that failed is made again; what is really wrong shows in the calls.
      this.#pauseMs = MOST_MS;
    } finally {
      this.#asking = false;
      this.#schedule();
    }
  }

  async #look(): Promise<void> {
    const { database, prefix: p, namespace } = this.#tables;
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
    this.#since = now - BigInt(OVERLAP_US);
    if (!somebodyIsDead) return;
    await buryTheDead(this.#tables);
    this.#again = true;
  }
}
