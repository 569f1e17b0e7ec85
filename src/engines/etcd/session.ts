/**
 * A session: a lease, and the keys under it. What all such sessions have in common is kit/ephemeral-session.ts.
 *
 * A beat asks three things at once:
 * - keep the lease alive. A ttl of 0 in the answer is the loss of everything; it is no error to etcd.
 * - the keys under the lease, which are the index of our claims. The answer grows with them: about 100 bytes each.
 * - the inbox, for evictions whose message we missed. This read is linearizable, and that is its second use: a leader that
 *   was frozen and replaced still answers keep-alives for a moment (etcd before 3.4.29 and 3.5.11), but it can't get such
 *   a read through in its old term. Where the two answers are of different terms, the beat counts for nothing.
 */
import type { Clock } from '../../core/clock.js';
import type { Claim, LineRef, OpenOptions, Session, SessionListener } from '../../core/engine.js';
import { EngineError } from '../../core/errors.js';
import { decodeName } from '../../kit/encoded-name.js';
import { foreignReason } from '../../kit/foreign-json.js';
import {
  EphemeralSession,
  type EphemeralPort,
  type KnownClaim,
  type Listing,
  type WaitingClaim,
} from '../../kit/ephemeral-session.js';
import type { Crowd, ObstacleWatch } from '../../kit/waiting-room.js';
import type { Calling, EtcdClient } from './client/client.js';
import { MOST, type Most } from './client/frames.js';
import type { KeyValue } from './client/messages.js';
import { EtcdError, STATUS } from './client/status.js';
import type { Watch, WatchTarget } from './client/watches.js';
import { explained } from './errors.js';
import { claimIdIn, claimSuffix, type Keys, under } from './keys.js';
import { type KeyEntered, type KeyFooting, type KeyFound, Lines, type ClaimSpot, text, written } from './protocol.js';
import { Permits } from './watches.js';

interface SessionSetup {
  readonly client: EtcdClient;
  readonly keys: Keys;
  readonly clock: Clock;
  readonly listener: SessionListener;
}

/** The core repeats whatever fails, and tells users why it did: it should hear of that soon. */
const ROUNDS = 2;

/** How many letters are looked for with each beat; and if others have written some with names that are too long for that. */
const LETTERS_AT_ONCE = 1_000n;
const FEWEST_LETTERS = 2n;

/** How many keys that nobody needs are deleted at a time. The next beat finds the others. */
const DISCARDED_AT_ONCE = 16;

/** As many reads as etcd takes in one transaction by default, less a few. */
const READS_AT_ONCE = 100;

export async function openSession(setup: SessionSetup, { ttlMs: askedMs }: OpenOptions): Promise<Session> {
  const { client, keys, clock, listener } = setup;
  const calling = { withinMs: askedMs / 3, rounds: ROUNDS, repeatable: true };
  const { id: lease, ttl } = await client.leaseGrant(BigInt(Math.ceil(askedMs / 1_000)), calling);
  const inbox = { key: Buffer.from(keys.inbox(lease)), lease };
  const { header } = await client.txn({ success: [{ put: inbox }] }, calling);
  // Members have a minimum, and may say anything: what was asked for is enough.
  const ttlMs = Math.min(askedMs, Number(ttl) * 1_000);
  const port = new LeasedKeys({ ...setup, lease, ttlMs });
  const session = new EphemeralSession({ ttlMs, clock, listener, port });
  port.listen(header.revision + 1n, {
    has: (claimId) => session.has(claimId),
    evicted: (claimId, reason) => session.evicted(claimId, reason),
    // Our own clock or the next beat would tell, too, but later.
    revoked: () => listener.ended({ reason: 'session' }),
  });
  return session;
}

interface LeaseSetup extends SessionSetup {
  readonly lease: bigint;
  readonly ttlMs: number;
}

interface News {
  has(claimId: string): boolean;
  /** False: there is no such claim any more. */
  evicted(claimId: string, reason: string): boolean;
  revoked(): void;
}

/** The keys under one lease. */
class LeasedKeys implements EphemeralPort<KeyFooting, WatchTarget> {
  readonly #setup: LeaseSetup;
  readonly #lines: Lines;
  readonly #calling: Calling;
  readonly #inboxPrefix: string;
  /** Claims of ours that a message in the inbox is about. It goes with the claim. */
  readonly #evicted = new Set<string>();
  #discarding = 0;
  #news: News | undefined;
  /** Undefined: history was compacted meanwhile. */
  #inbox: Watch | undefined;

  constructor(setup: LeaseSetup) {
    this.#setup = setup;
    // As long as the core itself waits for an answer.
    this.#calling = { withinMs: setup.ttlMs / 3, rounds: ROUNDS };
    this.#lines = new Lines(setup.client, this.#calling);
    this.#inboxPrefix = setup.keys.inbox(setup.lease);
  }

  enter(claim: Claim, footing: KeyFooting | undefined): Promise<KeyEntered> {
    return explained(this.#lines.enter(this.#spot(claim, footing)));
  }

  async leave({ ref, claim, footing }: KnownClaim<KeyFooting>): Promise<boolean> {
    const { keys, lease } = this.#setup;
    const key = footing?.key ?? (claim && this.#spot(claim).key);
    if (key === undefined) return false;
    const inbox = this.#evicted.has(ref.id) ? [keys.message(lease, ref.id)] : [];
    // Of one that a beat found nobody knows the revision.
    const stood = await explained(this.#lines.leave(key, footing?.token || undefined, inbox));
    this.#evicted.delete(ref.id);
    return stood;
  }

  async reweigh(claim: Claim, footing: KeyFooting): Promise<KeyFooting> {
    await explained(this.#lines.rewrite(this.#spot(claim, footing), footing.token));
    return footing;
  }

  async close(): Promise<void> {
    const { client, lease } = this.#setup;
    this.#news = undefined;
    this.#inbox?.close();
    try {
      await client.leaseRevoke(lease, this.#calling);
    } catch (error) {
      if (!(error instanceof EtcdError && error.status === STATUS.notFound)) await explained(Promise.reject(error));
    }
  }

  #spot(claim: Claim, footing?: KeyFooting): ClaimSpot {
    const { keys, lease, clock } = this.#setup;
    const prefix = keys.line(claim.line, claim.capacity);
    const anyCapacity = claim.line.kind === 'semaphore' ? keys.semaphores(claim.line.name) : undefined;
    const since = footing?.since ?? clock.wall();
    return { claim, lease, since, prefix, anyCapacity, key: prefix + claimSuffix(lease, claim.id) };
  }

  // --- waiting ------------------------------------------------------------------------------------------------------

  look({ claim, footing }: WaitingClaim<KeyFooting>): Promise<KeyFound> {
    return this.#lines.look(this.#spot(claim, footing), footing.token);
  }

  watch(target: WatchTarget, changed: () => void): ObstacleWatch<WatchTarget> {
    const watch = this.#setup.client.watches.watch(target, { changed, gap: changed });
    // After each look a new one, which begins where the look was: watches have been known to hang.
    return { covers: () => false, close: () => watch.close() };
  }

  crowd({ claim }: WaitingClaim<KeyFooting>, changed: () => void): Crowd<WaitingClaim<KeyFooting>, WatchTarget> {
    const { watches } = this.#setup.client;
    return new Permits({ lines: this.#lines, watches }, this.#spot(claim), changed);
  }

  // --- beats --------------------------------------------------------------------------------------------------------

  async beat(claims: number): Promise<Listing | undefined> {
    const { client, lease, ttlMs } = this.#setup;
    // What was missed is found by this beat; what comes from now on can be heard again.
    if (!this.#inbox && this.#news) this.#watchInbox(0n);
    const [kept, leased, mail] = await explained(
      Promise.all([
        client.leaseKeepAlive(lease, this.#calling),
        client.leaseKeys(lease, this.#calling, claims),
        this.#mail(LETTERS_AT_ONCE, MOST.letters).catch((error: unknown) => this.#fewer(error)),
      ]),
    );
    if (kept.ttl <= 0n) return undefined;
    if (kept.header.raftTerm !== mail.header.raftTerm)
      throw new EngineError('etcd elects a leader: the lease may have been kept by the one before.');
    if (Number(kept.ttl) * 1_000 < ttlMs)
      throw new EngineError('etcd keeps the lease for less than it was granted for.');
    await this.#readAll(mail.kvs.map(({ key }) => text(key)));
    return { entries: leased.keys.flatMap((key) => this.#entry(key)) };
  }

  #entry(key: string): Listing['entries'] {
    const id = key.startsWith(this.#inboxPrefix) ? undefined : claimIdIn(key.slice(key.lastIndexOf('/') + 1));
    return id === undefined ? [] : [{ id, name: key }];
  }

  recognize(footing: KeyFooting, key: string): KeyFooting | undefined {
    return footing.key === key ? footing : undefined;
  }

  async adopt(id: string, key: string): Promise<KnownClaim<KeyFooting> | undefined> {
    const [kv] = await this.#ours([key]);
    const line = kv && this.#lineOf(key, kv.value);
    return line && { ref: { id, line }, claim: undefined, footing: { key, token: 0n, since: 0 } };
  }

  discard(key: string): void {
    if (this.#discarding >= DISCARDED_AT_ONCE) return;
    this.#discarding += 1;
    this.#lines
      .leave(key, undefined, [])
      .catch(() => {})
      .finally(() => (this.#discarding -= 1));
  }

  /**
   * The keys of a lease come out of the leader's memory, which may be a moment behind what another member has told us: one that
   * is missing there must not be taken for lost. So those are read; that is little, however many claims there are.
   */
  readonly confirm = async (footings: readonly KeyFooting[]): Promise<ReadonlySet<KeyFooting>> => {
    const there = new Set((await this.#ours(footings.map(({ key }) => key))).map(({ key }) => text(key)));
    return new Set(footings.filter(({ key }) => there.has(key)));
  };

  /** Those of these keys that are there, under our lease. */
  async #ours(keys: readonly string[]): Promise<KeyValue[]> {
    const { client, lease } = this.#setup;
    const found: KeyValue[] = [];
    for (let at = 0; at < keys.length; at += READS_AT_ONCE) {
      // Nobody needs the value of more than one.
      const keysOnly = keys.length > 1;
      const success = keys.slice(at, at + READS_AT_ONCE).map((key) => ({ range: { key: Buffer.from(key), keysOnly } }));
      const { responses } = await explained(client.txn({ success }, { ...this.#calling, repeatable: true }));
      found.push(...responses.flatMap(({ range }) => range?.kvs ?? []).filter((kv) => kv.lease === lease));
    }
    return found;
  }

  /** With keys of the user's own, only the value knows which lock it is of. */
  #lineOf(key: string, value: Uint8Array): LineRef | undefined {
    const name = written(value)?.name;
    return this.#setup.keys.lineOf(key)?.line ?? (name === undefined ? undefined : { kind: 'lock', name });
  }

  // --- the inbox ----------------------------------------------------------------------------------------------------

  listen(from: bigint, news: News): void {
    this.#news = news;
    this.#watchInbox(from);
  }

  #watchInbox(from: bigint): void {
    const { from: key, to: rangeEnd } = under(this.#inboxPrefix);
    this.#inbox = this.#setup.client.watches.watch(
      { key, rangeEnd, from },
      {
        changed: (changes) => {
          for (const { deleted, kv } of changes) {
            if (!deleted) this.#tell(text(kv.key), text(kv.value));
            // Only the end of the lease deletes the inbox itself.
            else if (kv.key.length === key.length) this.#news?.revoked();
          }
        },
        gap: () => (this.#inbox = undefined),
      },
    );
  }

  /** Which letters there are. What stands in them may be of any size, and is read one by one. */
  #mail(limit: bigint, most: Most): ReturnType<EtcdClient['range']> {
    const { from, to } = under(this.#inboxPrefix);
    return this.#setup.client.range({ key: from, rangeEnd: to, limit, keysOnly: true }, this.#calling, most);
  }

  #fewer(error: unknown): ReturnType<EtcdClient['range']> {
    if (!(error instanceof EtcdError && error.status === STATUS.resourceExhausted)) throw error;
    return this.#mail(FEWEST_LETTERS, MOST.keys);
  }

  async #readAll(letters: readonly string[]): Promise<void> {
    for (const letter of letters) {
      const id = this.#addressee(letter);
      if (id === undefined || this.#evicted.has(id) || !this.#news?.has(id)) this.#tell(letter, '');
      else this.#tell(letter, await this.#reasonIn(letter));
    }
  }

  /** None where it can't be read: that a claim is to go is the letter's name alone. */
  async #reasonIn(letter: string): Promise<string> {
    const reading = this.#setup.client.range({ key: Buffer.from(letter) }, this.#calling);
    const [kv] = await reading.then(
      ({ kvs }) => kvs,
      () => [],
    );
    return kv ? text(kv.value) : '';
  }

  #addressee(letter: string): string | undefined {
    return decodeName(letter.slice(this.#inboxPrefix.length));
  }

  #tell(letter: string, reason: string): void {
    if (letter === this.#inboxPrefix || !this.#news) return;
    const id = this.#addressee(letter);
    if (id !== undefined && this.#evicted.has(id)) return;
    if (id !== undefined && this.#news.evicted(id, foreignReason(reason))) this.#evicted.add(id);
    // It had left already, or there can't be such a claim. The lease would take the letter along, but that may live for long.
    else this.discard(letter);
  }
}
