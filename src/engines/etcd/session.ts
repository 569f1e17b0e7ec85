/**
 * A session: a lease, and the claims under it. What etcd has is the truth; what is kept here only saves questions.
 *
 * A beat asks three things at once:
 * - keep the lease alive. A ttl of 0 in the answer is the loss of everything; it is no error to etcd.
 * - the keys under the lease, which are the index of our claims. The answer grows with them: about 100 bytes each.
 * - the inbox, for evictions whose message we missed. This read is linearizable, and that is its second use: a leader that
 *   was frozen and replaced still answers keep-alives for a moment (etcd before 3.4.29 and 3.5.11), but it can't get such
 *   a read through in its old term. Where the two answers are of different terms, the beat counts for nothing.
 */
import type { Clock } from '../../core/clock.js';
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
} from '../../core/engine.js';
import { agrees, type StandingClaim } from '../../kit/roster.js';
import { EngineError } from '../../core/errors.js';
import type { Calling, EtcdClient } from './client/client.js';
import { EtcdError, STATUS } from './client/status.js';
import type { Watch } from './client/watches.js';
import { explained } from './errors.js';
import { claimIdIn, claimSuffix, type Keys, under } from './keys.js';
import { type Entered, Lines, type Spot, text, type Written, written } from './protocol.js';
import { type EtcdWaiter, waitingRoom } from './watches.js';

interface Entry {
  readonly ref: ClaimRef;
  readonly serial: number;
  /** Absent for an orphan that a beat found: an enter that ran after its leave. */
  readonly spot: Spot | undefined;
  readonly key: string;
  /** When it entered, by our clock. */
  readonly since: number;
  state: 'entering' | 'waiting' | 'held';
  /** Enters without an answer: they may still put its key there, whatever we know. */
  entering: number;
  revision: bigint | undefined;
  stopWaiting: (() => void) | undefined;
  evicted: boolean;
}

interface SessionSetup {
  readonly client: EtcdClient;
  readonly keys: Keys;
  readonly clock: Clock;
  readonly listener: SessionListener;
}

/** The core repeats whatever fails, and tells users why it did: it should hear of that soon. */
const ROUNDS = 2;

/** As many reads as etcd takes in one transaction by default, less a few. */
const READS_AT_ONCE = 100;

export async function openSession(setup: SessionSetup, { ttlMs }: OpenOptions): Promise<EtcdSession> {
  const { client, keys } = setup;
  const calling = { withinMs: ttlMs / 3, rounds: ROUNDS, repeatable: true };
  const { id: lease, ttl } = await client.leaseGrant(BigInt(Math.ceil(ttlMs / 1_000)), calling);
  const inbox = { key: Buffer.from(keys.inbox(lease)), lease };
  const { header } = await client.txn({ success: [{ put: inbox }] }, calling);
  return new EtcdSession(setup, lease, Number(ttl) * 1_000, header!.revision);
}

export class EtcdSession implements Session {
  readonly ttlMs: number;
  readonly #setup: SessionSetup;
  readonly #lease: bigint;
  readonly #lines: Lines;
  readonly #waitingRoom: ReturnType<typeof waitingRoom>;
  readonly #entries = new Map<string, Entry>();
  /** The same, by key. */
  readonly #byKey = new Map<string, Entry>();
  readonly #calling: Calling;
  #inbox: Watch | undefined;
  #closed = false;

  constructor(setup: SessionSetup, lease: bigint, ttlMs: number, openedAt: bigint) {
    const { client, clock } = setup;
    this.#setup = setup;
    this.#lease = lease;
    this.ttlMs = ttlMs;
    // As long as the core itself waits for an answer.
    this.#calling = { withinMs: ttlMs / 3, rounds: ROUNDS };
    this.#lines = new Lines(client, this.#calling);
    this.#waitingRoom = waitingRoom({ lines: this.#lines, watches: client.watches, clock });
    this.#listen(openedAt + 1n);
  }

  async enter(claim: Claim): Promise<Place> {
    if (this.#closed) return { state: 'gone' };
    const entry = this.#entries.get(claim.id) ?? this.#newEntry(claim);
    entry.entering += 1;
    try {
      const entered = await explained(this.#lines.enter(this.#spot(claim), valueOf(claim, entry.since)));
      entry.entering -= 1;
      return this.#placed(entry, entered);
    } catch (error) {
      entry.entering -= 1;
      throw error;
    }
  }

  async leave({ id }: ClaimRef): Promise<boolean> {
    const entry = this.#entries.get(id);
    if (!entry) return false;
    const { key, revision, evicted } = entry;
    entry.stopWaiting?.();
    const inbox = evicted ? [this.#inboxKey(id)] : [];
    const stood = await explained(this.#lines.leave(key, revision, inbox));
    if (entry.entering === 0) this.#forget(entry);
    return stood;
  }

  async reweigh(claim: Claim): Promise<void> {
    const entry = this.#entries.get(claim.id);
    if (entry?.revision === undefined) return;
    await explained(this.#lines.rewrite(this.#spot(claim), entry.revision, valueOf(claim, entry.since)));
  }

  async beat(roster: Roster): Promise<Pulse> {
    if (this.#closed) return { alive: false };
    const { client } = this.#setup;
    const inbox = under(this.#setup.keys.inbox(this.#lease));
    const [kept, leased, mail] = await explained(
      Promise.all([
        client.leaseKeepAlive(this.#lease, this.#calling),
        client.leaseKeys(this.#lease, this.#calling),
        client.range({ key: inbox.from, rangeEnd: inbox.to }, this.#calling),
      ]),
    );
    if (kept.ttl <= 0n) return { alive: false };
    if (kept.header?.raftTerm !== mail.header?.raftTerm)
      throw new EngineError('etcd elects a leader: the lease may have been kept by the one before.');
    for (const { key, value } of mail.kvs) this.#evicted(text(key), text(value));
    this.#waitingRoom.check();
    if (agrees(roster, this.#claimsOf(leased.keys.map(text)))) return { alive: true };
    const standing = await explained(this.#standing(leased.keys.map(text)));
    return agrees(roster, this.#claimsOf(standing)) ? { alive: true } : { alive: true, index: this.#index(standing) };
  }

  async close(): Promise<void> {
    this.#closed = true;
    this.#inbox?.close();
    for (const { stopWaiting } of this.#entries.values()) stopWaiting?.();
    this.#entries.clear();
    this.#byKey.clear();
    try {
      await this.#setup.client.leaseRevoke(this.#lease, this.#calling);
    } catch (error) {
      if (!(error instanceof EtcdError && error.status === STATUS.notFound)) await explained(Promise.reject(error));
    }
  }

  // --- claims ---------------------------------------------------------------------------------------------------

  #placed(entry: Entry, entered: Entered): Place {
    if (entered.state !== 'held' && entered.state !== 'waiting') {
      if (entry.entering === 0) this.#forget(entry);
      return entered;
    }
    this.#keep(entry, entered.revision);
    // Who held once holds: a look that was older may say otherwise.
    if (entered.state === 'held' || entry.state === 'held') {
      entry.state = 'held';
      entry.stopWaiting?.();
      return { state: 'held', token: entered.revision };
    }
    entry.state = 'waiting';
    this.#wait(entry, entered);
    return { state: 'waiting' };
  }

  #wait(entry: Entry, { revision, obstacle }: Extract<Entered, { state: 'waiting' }>): void {
    const { spot } = entry;
    const { id } = entry.ref;
    if (!spot || this.#closed) return;
    entry.stopWaiting?.();
    const waiter: EtcdWaiter = {
      spot,
      revision,
      key: spot.key,
      crowd: spot.claim.line.kind === 'semaphore' ? spot.prefix : undefined,
      granted: () => {
        entry.state = 'held';
        this.#setup.listener.granted(id, revision);
      },
      vanished: () => this.#setup.listener.lost(id, { reason: 'session' }),
    };
    entry.stopWaiting = this.#waitingRoom.wait(waiter, obstacle);
  }

  #newEntry(claim: Claim): Entry {
    const spot = this.#spot(claim);
    const entry: Entry = {
      ref: { id: claim.id, line: claim.line },
      serial: claim.serial,
      spot,
      key: spot.key,
      since: this.#setup.clock.wall(),
      state: 'entering',
      entering: 0,
      revision: undefined,
      stopWaiting: undefined,
      evicted: false,
    };
    this.#keep(entry, undefined);
    return entry;
  }

  /** Also one that was left meanwhile, if its enter was carried out only now: the core will leave it again. */
  #keep(entry: Entry, revision: bigint | undefined): void {
    entry.revision = revision ?? entry.revision;
    this.#entries.set(entry.ref.id, entry);
    this.#byKey.set(entry.key, entry);
  }

  #forget(entry: Entry): void {
    entry.stopWaiting?.();
    this.#entries.delete(entry.ref.id);
    this.#byKey.delete(entry.key);
  }

  #spot(claim: Claim): Spot {
    const { keys } = this.#setup;
    const prefix = keys.line(claim.line, claim.capacity);
    const anyCapacity = claim.line.kind === 'semaphore' ? keys.semaphores(claim.line.name) : undefined;
    return { claim, lease: this.#lease, prefix, anyCapacity, key: prefix + claimSuffix(this.#lease, claim.id) };
  }

  // --- evictions ------------------------------------------------------------------------------------------------

  #listen(from: bigint): void {
    const { from: key, to: rangeEnd } = under(this.#setup.keys.inbox(this.#lease));
    this.#inbox = this.#setup.client.watches.watch(
      { key, rangeEnd, from },
      {
        changed: (changes) => {
          for (const { deleted, kv } of changes) {
            if (!deleted) this.#evicted(text(kv.key), text(kv.value));
            else if (kv.key.length === key.length) this.#revoked();
          }
        },
        // What was missed is found by the next beat; what comes from now on can be heard again.
        gap: () => this.#closed || this.#listen(0n),
      },
    );
  }

  #inboxKey(claimId: string): string {
    return this.#setup.keys.inbox(this.#lease) + encodeURIComponent(claimId);
  }

  /** Only the end of the lease deletes the inbox itself. Our own clock or the next beat would tell, too, but later. */
  #revoked(): void {
    if (!this.#closed) this.#setup.listener.ended({ reason: 'session' });
  }

  #evicted(key: string, reason: string): void {
    const id = decodeURIComponent(key.slice(key.lastIndexOf('/') + 1));
    if (id === '') return;
    const entry = this.#entries.get(id);
    if (entry) {
      entry.evicted = true;
      this.#setup.listener.lost(id, { reason: 'evicted', detail: reason });
    } else {
      // It had left already. The lease would take the message along, but that may live for long.
      this.#lines.leave(key, undefined, []).catch(() => {});
    }
  }

  // --- the index ------------------------------------------------------------------------------------------------

  *#claimsOf(keys: readonly string[]): Iterable<StandingClaim> {
    const inbox = this.#setup.keys.inbox(this.#lease);
    for (const key of keys) {
      if (key.startsWith(inbox)) continue;
      const entry = this.#byKey.get(key);
      // One that we do not know counts, so that it shows.
      yield { id: entry?.ref.id ?? key, serial: entry?.serial ?? 0, held: entry?.state === 'held' };
    }
  }

  /**
   * Which of our claims stand, beyond doubt. The keys of a lease come out of the leader's memory, which may be a moment
   * behind what another member has told us: one that is missing there must not be taken for lost. So what the two do not
   * agree on is read; that is little, however many claims there are.
   */
  async #standing(leased: readonly string[]): Promise<readonly string[]> {
    const there = new Set(leased);
    const standing = leased.filter((key) => this.#byKey.has(key));
    const doubtful = [
      ...leased.filter((key) => !this.#byKey.has(key)),
      ...[...this.#byKey.keys()].filter((key) => !there.has(key)),
    ];
    for (let at = 0; at < doubtful.length; at += READS_AT_ONCE) {
      const reads = doubtful.slice(at, at + READS_AT_ONCE).map((key) => ({ range: { key: Buffer.from(key) } }));
      const { responses } = await this.#setup.client.txn({ success: reads }, { ...this.#calling, repeatable: true });
      for (const { key, value, lease } of responses.flatMap(({ range }) => range?.kvs ?? [])) {
        if (lease !== this.#lease) continue;
        standing.push(text(key));
        this.#adopt(text(key), value);
      }
    }
    return standing;
  }

  /** An enter that ran after its leave, which we had forgotten by then. */
  #adopt(key: string, value: Uint8Array): void {
    const { keys } = this.#setup;
    if (this.#byKey.has(key) || key.startsWith(keys.inbox(this.#lease))) return;
    const id = claimIdIn(key.slice(key.lastIndexOf('/') + 1));
    const line = lineOf(keys, key, value);
    if (id === undefined || !line) return;
    const ref = { id, line };
    const nothing = { spot: undefined, revision: undefined, stopWaiting: undefined, since: 0, serial: 0 };
    this.#keep({ ref, key, state: 'waiting', entering: 0, evicted: false, ...nothing }, undefined);
  }

  #index(standing: readonly string[]): IndexedClaim[] {
    return standing.flatMap((key) => {
      const entry = this.#byKey.get(key);
      if (!entry) return [];
      const held = entry.state === 'held';
      return [{ ...entry.ref, state: held ? 'held' : 'waiting', token: held ? entry.revision : undefined }];
    });
  }
}

/** What protocol.ts calls a claim's value. */
function valueOf({ weight, note, line }: Claim, since: number): string {
  const value: Written = { weight, note, since, name: line.name };
  return JSON.stringify(value);
}

function lineOf(keys: Keys, key: string, value: Uint8Array): LineRef | undefined {
  const line = keys.lineOf(key)?.line;
  const name = written(value)?.name;
  return line ?? (name === undefined ? undefined : { kind: 'lock', name });
}
