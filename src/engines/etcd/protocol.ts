/**
 * The protocol: how a line stands in etcd, and the steps on it. Each step is one transaction or one linearizable read.
 *
 * A session is a lease. A claim is a key under its lease, so that it goes when the session does; keys.ts has the names. Its
 * value is {weight, note, since, name} in JSON. The key's *create revision* is its place in line and its token: etcd
 * counts one revision up for each change of anything, agreed by a majority, for ever.
 *
 *     order by create revision →  [7 writer, held] | [9 reader, waits][12 reader, waits][15 writer, waits]
 *                                                       watches 7        watches 7         watches 12
 *
 * Who holds follows from the line alone, by the one rule of core/line.ts; nobody writes it down. So a grant is no message:
 * a waiting claim watches what stands in its way, and looks again when that is gone.
 * - A writer or mutex holds if nobody stands before it. It watches the claim right before it: one wake-up per release.
 * - A reader holds if no writer stands before it. It watches the nearest of those, also for becoming lighter.
 * - A permit watches its whole line for deletions, because any of them may make room.
 * Looking reads the own key too: a claim whose lease died while it waited must not be granted.
 *
 * Entering is idempotent: the key has the claim's id in it, and is made only where there is none. Claims that would not
 * wait are made only if they hold at once, in one transaction, so none of them ever stands in anybody's way. Leaving is
 * guarded by the create revision.
 *
 * `etcdctl lock` and Go's concurrency.Mutex make the key <prefix>/<lease> with an empty value, and hold if it has the lowest
 * create revision under that prefix. We take such a key for a writer; they take every key of ours for one. Any other key
 * that lies among claims is passed over. A key with a claim's name counts whatever its value says: who overwrote it may not
 * have told its holder.
 *
 * What can go wrong: a restored backup takes revisions back, and with them tokens (docs/engines/etcd.md).
 */
import type { Claim } from '../../core/engine.js';
import { ALL, holders } from '../../core/line.js';
import { performance } from '../../core/real-time.js';
import type { Entered, Footing, Found } from '../../kit/ephemeral-session.js';
import { foreignFields } from '../../kit/foreign-json.js';
import type { Calling, EtcdClient } from './client/client.js';
import { IS, type KeyValue, ORDER, type RangeRequest, SORT, TARGET, type TxnRequest } from './client/messages.js';
import { EtcdError, STATUS } from './client/status.js';
import type { WatchTarget } from './client/watches.js';
import type { Sent } from './client/wire.js';
import { claimIdIn, isLeaseAlone, type KeyRange, permitCapacity, under } from './keys.js';

/** A claim as it stands in a line. */
export interface StandingKey {
  readonly key: string;
  readonly kv: KeyValue;
  readonly weight: number;
}

/** Where a claim of ours is, and what it is called there. */
export interface ClaimSpot {
  readonly claim: Claim;
  readonly lease: bigint;
  /** When it was first asked for, by our clock. */
  readonly since: number;
  readonly key: string;
  /** What the keys of its line begin with. */
  readonly prefix: string;
  /** The same for lines of another capacity, which may not exist beside it. Absent for locks, where all have the same. */
  readonly anyCapacity?: string | undefined;
}

/** A claim's key. Its create revision is the token. */
export interface KeyFooting extends Footing {
  readonly key: string;
  readonly since: number;
}

export type KeyFound = Found<KeyFooting, WatchTarget>;
export type KeyEntered = Entered<KeyFooting, WatchTarget>;

type Ops = NonNullable<Sent<typeof TxnRequest>['success']>;
type Compare = NonNullable<Sent<typeof TxnRequest>['compare']>[number];

interface LineRead {
  readonly standings: readonly StandingKey[];
  /** When it was like this. */
  readonly at: bigint;
}

export class Lines {
  readonly #client: EtcdClient;
  readonly #calling: Calling;

  constructor(client: EtcdClient, calling: Calling) {
    this.#client = client;
    this.#calling = calling;
  }

  async enter(spot: ClaimSpot): Promise<KeyEntered> {
    try {
      return await (spot.claim.wait ? this.#join(spot) : this.#tryToHold(spot));
    } catch (error) {
      // The put names a lease that is not there any more.
      if (error instanceof EtcdError && error.status === STATUS.notFound) return { state: 'gone' };
      throw error;
    }
  }

  /** Where a claim of ours stands now, by its own key and those before it. */
  async look(spot: ClaimSpot, revision: bigint): Promise<KeyFound> {
    const { prefix, claim } = spot;
    if (isSemaphore(claim)) return this.#own(spot, place(spot, revision, await this.permits(spot)));
    if (isExclusive(claim)) {
      const newest = await this.#read({ ...newestTwo(prefix), maxCreateRevision: revision });
      const found = lastPlace(spot, revision, newest);
      if (found) return found;
    }
    const line = await this.#read({ ...inOrder(prefix), maxCreateRevision: revision });
    return place(spot, revision, onlyOf(spot, line));
  }

  /** As much of a semaphore's line as can hold. */
  async permits(spot: ClaimSpot): Promise<LineRead> {
    const front = await this.#read(inOrder(spot.prefix, spot.claim));
    const line = onlyOf(spot, front);
    // What is no claim has taken the place of some that are.
    return isSame(line, front) ? line : onlyOf(spot, await this.#read(inOrder(spot.prefix)));
  }

  /** False: it did not stand there. */
  async leave(key: string, revision: bigint | undefined, also: readonly string[]): Promise<boolean> {
    const name = Buffer.from(key);
    const guard: Compare =
      revision === undefined
        ? { target: TARGET.create, result: IS.greater, key: name, createRevision: 0n }
        : { target: TARGET.create, result: IS.equal, key: name, createRevision: revision };
    const others = also.map((other) => ({ delete: { key: Buffer.from(other) } }));
    const request = { compare: [guard], success: [{ delete: { key: name } }, ...others], failure: others };
    const { withinMs } = this.#calling;
    const soonMs = withinMs / 3;
    try {
      return (await this.#client.txn(request, { ...this.#calling, withinMs: soonMs, repeatable: false })).succeeded;
    } catch (error) {
      if (!(error instanceof EtcdError && error.elsewhere)) throw error;
      // Who finds it gone the second time can't know whether it was the first that did it. It is gone, and that is enough.
      await this.#client.txn(request, { ...this.#calling, withinMs: withinMs - soonMs, repeatable: true });
      return true;
    }
  }

  async rewrite(spot: ClaimSpot, revision: bigint): Promise<void> {
    const stands = { target: TARGET.create, result: IS.equal, key: Buffer.from(spot.key), createRevision: revision };
    await this.#txn([stands], [put(spot)], []);
  }

  // --- entering -------------------------------------------------------------------------------------------------

  async #join(spot: ClaimSpot): Promise<KeyEntered> {
    const { claim, prefix, key } = spot;
    let alone = isEmptyBeside(spot);
    for (const isLate = this.#deadline(); ;) {
      const { header, succeeded, responses } = await this.#txn(
        [isAbsent(key), ...alone],
        [put(spot), { range: isExclusive(claim) ? newestTwo(prefix) : inOrder(prefix, claim) }],
        [{ range: { key: Buffer.from(key) } }],
      );
      const read = responses.at(-1)?.range?.kvs ?? [];
      if (succeeded) return this.#joined(spot, { standings: readAll(read), at: header.revision });
      if (read[0]) return this.#alreadyThere(spot, read[0]);
      if (isLate()) throw overtaken();
      // A semaphore beside which something lies: others use it with another capacity, or that is no claim.
      const beside = await this.#read({ ...inOrder(spot.anyCapacity ?? prefix), keysOnly: true });
      const capacity = otherCapacity(spot, beside);
      if (capacity !== undefined) return { state: 'mismatch', capacity };
      alone = isUnchangedBeside(spot, beside.at);
    }
  }

  async #joined(spot: ClaimSpot, read: LineRead): Promise<KeyEntered> {
    const line = onlyOf(spot, read);
    // A part of a line from which something was taken out may be too little to tell.
    const found = isExclusive(spot.claim)
      ? lastPlace(spot, read.at, read)
      : isSame(line, read)
        ? place(spot, read.at, line)
        : undefined;
    return standingOrGone(found ?? (await this.look(spot, read.at)));
  }

  async #tryToHold(spot: ClaimSpot): Promise<KeyEntered> {
    return isExclusive(spot.claim) ? this.#takeEmpty(spot) : this.#takeRoom(spot);
  }

  /** Exclusive use: if there is nobody. */
  async #takeEmpty(spot: ClaimSpot): Promise<KeyEntered> {
    const { prefix, key } = spot;
    const { header, succeeded, responses } = await this.#txn(
      [isEmpty(under(prefix))],
      [put(spot)],
      [{ range: { key: Buffer.from(key) } }, { range: { ...inOrder(prefix), limit: 1n } }],
    );
    if (succeeded) return { state: 'held', footing: footingOf(spot, header.revision) };
    const own = responses[0]?.range?.kvs[0];
    if (own) return this.#alreadyThere(spot, own);
    const [first] = readAll(responses[1]?.range?.kvs ?? []);
    // No claim; or, with keys of the user's own, one of another line, whose name begins like this one's.
    return first && !standsIn(spot, first) ? this.#takeRoom(spot) : { state: 'refused' };
  }

  /** If there is room: read the line, and enter if nobody has entered since. */
  async #takeRoom(spot: ClaimSpot): Promise<KeyEntered> {
    const { claim, prefix, key, anyCapacity = prefix } = spot;
    for (const isLate = this.#deadline(); ;) {
      const all = await this.#read(inOrder(anyCapacity));
      const own = all.standings.find((standing) => standing.key === key);
      if (own) return this.#alreadyThere(spot, own.kv);
      const { standings } = onlyOf(spot, all);
      const capacity = otherCapacity(spot, all);
      if (capacity !== undefined) return { state: 'mismatch', capacity };
      const weights = [...standings.map(({ weight }) => weight), claim.weight];
      if (holders(weights, claim.capacity) < weights.length) return { state: 'refused' };
      const unchanged = isUnchanged(under(anyCapacity), all.at);
      const { succeeded, header } = await this.#txn([unchanged], [put(spot)], []);
      if (succeeded) return { state: 'held', footing: footingOf(spot, header.revision) };
      if (isLate()) throw overtaken();
    }
  }

  /** The same enter again. */
  async #alreadyThere(spot: ClaimSpot, own: KeyValue): Promise<KeyEntered> {
    return standingOrGone(await this.look(spot, own.createRevision));
  }

  /** Whoever asked has given up by then: nobody must go on for ever because others are always quicker. */
  #deadline(): () => boolean {
    const endsAt = performance.now() + this.#calling.withinMs;
    return () => performance.now() > endsAt;
  }

  /** A permit beyond those that can hold was not read with them: it waits if it is there at all. */
  async #own({ key }: ClaimSpot, found: KeyFound): Promise<KeyFound> {
    if (found.state !== 'waiting') return found;
    const { kvs } = await this.#client.range({ key: Buffer.from(key) }, this.#calling);
    return kvs[0]?.createRevision === found.footing.token ? found : { state: 'absent' };
  }

  async #read(request: Sent<typeof RangeRequest>): Promise<LineRead> {
    const { header, kvs } = await this.#client.range(request, this.#calling);
    return { standings: readAll(kvs), at: header.revision };
  }

  #txn(compare: readonly Compare[], success: Ops, failure: Ops, repeatable = true): ReturnType<EtcdClient['txn']> {
    return this.#client.txn({ compare, success, failure }, { ...this.#calling, repeatable });
  }
}

// --- what a line says ---------------------------------------------------------------------------------------------

/** It was there a moment ago, and nothing but the end of its lease takes a claim away that nobody left. */
function standingOrGone(found: KeyFound): KeyEntered {
  return found.state === 'absent' ? { state: 'gone' } : found;
}

function footingOf({ key, since }: ClaimSpot, revision: bigint): KeyFooting {
  return { key, since, token: revision };
}

/** By the one rule. */
function place(spot: ClaimSpot, revision: bigint, { standings, at }: LineRead): KeyFound {
  const { claim, key, prefix } = spot;
  const footing = footingOf(spot, revision);
  const index = standings.findIndex((standing) => standing.key === key && standing.kv.createRevision === revision);
  if (isSemaphore(claim)) {
    const held = index !== -1 && index < heldCount(standings, claim.capacity);
    return held ? { state: 'held', footing } : { state: 'waiting', footing, obstacle: permitsWatch(prefix, at) };
  }
  if (index === -1) return { state: 'absent' };
  const before = standings.slice(0, index);
  const blocker = isExclusive(claim) ? before.at(-1) : before.findLast(({ weight }) => weight >= claim.capacity);
  return blocker ? behind(blocker, footing, at, isExclusive(claim)) : { state: 'held', footing };
}

/** The place of an exclusive claim at the end of what was read; undefined: more must be read to tell. */
function lastPlace(spot: ClaimSpot, revision: bigint, { standings, at }: LineRead): KeyFound | undefined {
  const footing = footingOf(spot, revision);
  const [own, before] = standings;
  if (own?.key !== spot.key || own.kv.createRevision !== revision) return undefined;
  if (!before) return { state: 'held', footing };
  return standsIn(spot, before) ? behind(before, footing, at, true) : undefined;
}

function behind({ kv }: StandingKey, footing: KeyFooting, at: bigint, deletionsOnly: boolean): KeyFound {
  return { state: 'waiting', footing, obstacle: { key: kv.key, from: at + 1n, deletionsOnly } };
}

/** Whoever leaves a semaphore after this revision. */
export function permitsWatch(prefix: string, at: bigint): WatchTarget {
  const { from, to } = under(prefix);
  return { key: from, rangeEnd: to, from: at + 1n, deletionsOnly: true };
}

/** How many at the front hold. */
export function heldCount(standings: readonly StandingKey[], capacity: number): number {
  return holders(
    standings.map(({ weight }) => weight),
    capacity,
  );
}

function isSemaphore({ line }: Claim): boolean {
  return line.kind === 'semaphore';
}

/** Mutex and write lock. */
function isExclusive({ line, weight, capacity }: Claim): boolean {
  return line.kind === 'lock' && weight >= capacity;
}

export function readAll(kvs: readonly KeyValue[]): StandingKey[] {
  return kvs.map((kv) => ({ key: text(kv.key), kv, weight: weightIn(kv.value) }));
}

type Own = Pick<ClaimSpot, 'claim' | 'prefix'>;

function onlyOf(spot: Own, { standings, at }: LineRead): LineRead {
  return { standings: standings.filter((standing) => standsIn(spot, standing)), at };
}

function isSame(line: LineRead, other: LineRead): boolean {
  return line.standings.length === other.standings.length;
}

/** Whether it is a claim in this line, and nothing else that lies there. */
function standsIn({ claim, prefix }: Own, { key, kv }: StandingKey): boolean {
  if (!key.startsWith(prefix)) return false;
  const suffix = key.slice(prefix.length);
  return claimIdIn(suffix) !== undefined || (!isSemaphore(claim) && isLeaseAlone(suffix, kv.lease));
}

/** The capacity that others use this semaphore with. */
function otherCapacity({ claim, anyCapacity }: ClaimSpot, { standings }: LineRead): number | undefined {
  if (anyCapacity === undefined) return undefined;
  return standings
    .map(({ key }) => permitCapacity(key.slice(anyCapacity.length)))
    .find((capacity) => capacity !== undefined && capacity !== claim.capacity);
}

function overtaken(): EtcdError {
  return new EtcdError(STATUS.unavailable, 'others were quicker, again and again', true);
}

/** What a claim's value says. */
export interface Written {
  readonly weight: number;
  readonly note: string;
  readonly since: number;
  readonly name: string;
}

/** Undefined: not written by us. */
export function written(value: Uint8Array): Written | undefined {
  const { weight, note, since, name } = foreignFields(text(value));
  const sound = typeof note === 'string' && typeof since === 'number' && typeof name === 'string';
  if (!sound || !Number.isInteger(weight) || (weight as number) <= 0) return undefined;
  return { weight: weight as number, note, since, name };
}

/** Whatever is not ours excludes everybody. */
function weightIn(value: Uint8Array): number {
  return (value.length === 0 ? undefined : written(value)?.weight) ?? ALL;
}

export function text(bytes: Uint8Array): string {
  return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.length).toString();
}

// --- requests -----------------------------------------------------------------------------------------------------

function put({ claim, key, lease, since }: ClaimSpot): Ops[number] {
  const value: Written = { weight: claim.weight, note: claim.note, since, name: claim.line.name };
  return { put: { key: Buffer.from(key), value: Buffer.from(JSON.stringify(value)), lease } };
}

function isAbsent(key: string): Compare {
  return { target: TARGET.create, result: IS.equal, key: Buffer.from(key), createRevision: 0n };
}

function isEmpty({ from, to }: KeyRange): Compare {
  return { target: TARGET.create, result: IS.equal, key: from, rangeEnd: to, createRevision: 0n };
}

/** No claim of another capacity: those stand before and behind our own part of the semaphore's keys. */
function isEmptyBeside(spot: ClaimSpot): readonly Compare[] {
  return beside(spot).map(isEmpty);
}

/** Nothing has come there since it was looked at. */
function isUnchangedBeside(spot: ClaimSpot, at: bigint): readonly Compare[] {
  return beside(spot).map((range) => isUnchanged(range, at));
}

function beside({ anyCapacity, prefix }: ClaimSpot): readonly KeyRange[] {
  if (anyCapacity === undefined) return [];
  const [all, ours] = [under(anyCapacity), under(prefix)];
  return [
    { from: all.from, to: ours.from },
    { from: ours.to, to: all.to },
  ];
}

function isUnchanged({ from, to }: KeyRange, at: bigint): Compare {
  return { target: TARGET.mod, result: IS.less, key: from, rangeEnd: to, modRevision: at + 1n };
}

/** The claim that entered last and the one before it. Whoever that is, an exclusive claim waits for it: no values. */
function newestTwo(prefix: string): Sent<typeof RangeRequest> {
  const { from, to } = under(prefix);
  const order = { sortTarget: SORT.create, sortOrder: ORDER.descending };
  return { key: from, rangeEnd: to, ...order, limit: 2n, keysOnly: true };
}

/** The line in order; of a semaphore's, as much as can hold. */
function inOrder(prefix: string, claim?: Claim): Sent<typeof RangeRequest> {
  const { from, to } = under(prefix);
  const limit = claim && isSemaphore(claim) ? BigInt(claim.capacity) : 0n;
  return { key: from, rangeEnd: to, sortTarget: SORT.create, sortOrder: ORDER.ascending, limit };
}
