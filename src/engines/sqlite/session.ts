/** A session on a file: each call is one transaction on the ledger of protocol.ts. */
import type {
  Claim,
  ClaimRef,
  OpenOptions,
  Place,
  Pulse,
  Roster,
  Session,
  SessionListener,
} from '../../core/engine.js';
import { Awaited } from '../../kit/awaited.js';
import { Doorbell } from './doorbell.js';
import type { Ledger } from './protocol.js';

/** What a session needs of its engine. */
export interface LockFile {
  /** One transaction, tried again while others are at it. */
  transact<T>(work: (ledger: Ledger) => T): Promise<T>;
  /** Whether somebody has died. */
  hasNews(): boolean;
  /** Somebody of ours waits. */
  watch(): void;
  /** Looks now whether somebody of ours has been granted. */
  look(): Promise<void>;
  forget(session: SqliteSession): void;
}

/** Between two looks of whoever is next in line: with a bell, which may be lost, and without one. Each place further back adds as much. */
const PAUSE_MS = { withBell: 100, withoutBell: 4 };
const LONGEST_PAUSE_MS = 1_000;

export class SqliteSession implements Session {
  readonly ttlMs: number;
  readonly id: string;
  readonly #file: LockFile;
  readonly #awaited: Awaited;
  /** Made with the first wait, and kept: most sessions wait never, or again. */
  #bell: Doorbell | undefined;
  /** Of the claim that is nearest to its turn: 1 is next. */
  #place = 1;

  constructor(file: LockFile, { id, ttlMs }: OpenOptions, listener: SessionListener) {
    this.#file = file;
    this.id = id;
    this.ttlMs = ttlMs;
    this.#awaited = new Awaited(listener);
  }

  get waits(): boolean {
    return this.#awaited.size > 0;
  }

  /** Until the next look. */
  get pauseMs(): number {
    const { withBell, withoutBell } = PAUSE_MS;
    return Math.min(LONGEST_PAUSE_MS, this.#place * (this.#bell?.works ? withBell : withoutBell));
  }

  async enter(claim: Claim): Promise<Place> {
    const place = await this.#file.transact((ledger) => {
      const entered = ledger.enter(this.id, claim);
      // At once: before our caller hears that it waits, a leave of our own may have granted it, and that shows to nobody later.
      if (entered.state === 'waiting') this.#awaited.add(claim.id);
      return entered;
    });
    if (place.state === 'waiting') this.#await();
    return place;
  }

  leave(claim: ClaimRef): Promise<boolean> {
    this.#awaited.delete(claim.id);
    return this.#file.transact((ledger) => ledger.leave(this.id, claim));
  }

  reweigh(claim: Claim): Promise<void> {
    return this.#file.transact((ledger) => ledger.reweigh(this.id, claim));
  }

  async beat(roster: Roster): Promise<Pulse> {
    const reap = this.#file.hasNews();
    const { pulse, evicted } = await this.#file.transact((ledger) => ledger.beat(this.id, roster, reap));
    for (const { id, reason } of evicted) this.#awaited.evicted(id, reason);
    return pulse;
  }

  async close(): Promise<void> {
    this.deafen();
    this.#file.forget(this);
    await this.#file.transact((ledger) => ledger.close(this.id));
  }

  /** Nobody of ours waits any more. */
  deafen(): void {
    this.#awaited.clear();
    this.#bell?.close();
  }

  /** What has happened to ours since the last look. */
  tell(ledger: Ledger): void {
    let nearest = Number.POSITIVE_INFINITY;
    for (const id of [...this.#awaited]) {
      const { token, evicted } = ledger.look(this.id, id);
      if (token !== undefined) this.#awaited.granted(id, token);
      else if (nearest > 1) nearest = Math.min(nearest, ledger.place(this.id, id));
      if (evicted !== undefined) this.#awaited.evicted(id, evicted);
    }
    this.#place = Math.max(1, nearest);
  }

  #await(): void {
    // Until the first look it may be next.
    this.#place = 1;
    this.#bell ??= new Doorbell(this.id, () => void this.#file.look());
    this.#file.watch();
  }
}
