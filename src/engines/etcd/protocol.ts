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
 * create revision under that prefix. We take a key that is not ours for a writer; they take every key of ours for one.
 *
 * What can go wrong: a restored backup takes revisions back, and with them tokens (docs/engines/etcd.md).
 */
import type { Claim } from '../../core/engine.js';
import { ALL, holders } from '../../core/line.js';
import type { Calling, EtcdClient } from './client/client.js';
import { IS, type KeyValue, ORDER, type RangeRequest, SORT, TARGET, type TxnRequest } from './client/messages.js';
import { EtcdError, STATUS } from './client/status.js';
import type { WatchTarget } from './client/watches.js';
import type { Sent } from './client/wire.js';
import { isOf, type KeyRange, under } from './keys.js';

/** A claim as it stands in a line. */
export interface Standing {
  readonly key: string;
  readonly kv: KeyValue;
  readonly weight: number;
}

/** Where a claim of ours is, and what it is called there. */
export interface Spot {
  readonly claim: Claim;
  readonly lease: bigint;
  readonly key: string;
  /** What the keys of its line begin with. */
  readonly prefix: string;
  /** The same for lines of another capacity, which may not exist beside it. Absent for locks, where all have the same. */
  readonly anyCapacity?: string | undefined;
}

export type Found =
  | { readonly state: 'held'; readonly revision: bigint }
  | { readonly state: 'waiting'; readonly revision: bigint; readonly obstacle: WatchTarget }
  /** It does not stand in line. */
  | { readonly state: 'absent' };

export type Entered =
  | Exclude<Found, { readonly state: 'absent' }>
  | { readonly state: 'refused' }
  | { readonly state: 'mismatch'; readonly capacity: number }
  | { readonly state: 'gone' };

type Ops = NonNullable<Sent<typeof TxnRequest>['success']>;
type Compare = NonNullable<Sent<typeof TxnRequest>['compare']>[number];

interface Line {
  readonly standings: readonly Standing[];
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

  async enter(spot: Spot, value: string): Promise<Entered> {
    try {
      return await (spot.claim.wait ? this.#join(spot, value) : this.#tryToHold(spot, value));
    } catch (error) {
      // The put names a lease that is not there any more.
      if (error instanceof EtcdError && error.status === STATUS.notFound) return { state: 'gone' };
      throw error;
    }
  }

  /** Where a claim of ours stands now, by its own key and those before it. */
  async look(spot: Spot, revision: bigint): Promise<Found> {
    const { prefix, claim } = spot;
    if (isSemaphore(claim)) {
      return this.#own(spot, place(spot, revision, await this.permits(prefix, claim.capacity)));
    }
    if (isExclusive(claim)) {
      const newest = await this.#read({ ...newestTwo(prefix), maxCreateRevision: revision });
      const found = lastPlace(spot, revision, newest);
      if (found) return found;
    }
    const line = await this.#read({ ...inOrder(prefix), maxCreateRevision: revision });
    return place(spot, revision, onlyOf(prefix, line));
  }

  /** As much of a semaphore's line as can hold. */
  async permits(prefix: string, capacity: number): Promise<Line> {
    return this.#read({ ...inOrder(prefix), limit: BigInt(capacity) });
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

  async rewrite({ key, lease }: Spot, revision: bigint, value: string): Promise<void> {
    const name = Buffer.from(key);
    const stands = { target: TARGET.create, result: IS.equal, key: name, createRevision: revision };
    await this.#txn([stands], [{ put: { key: name, value: Buffer.from(value), lease } }], []);
  }

  // --- entering -------------------------------------------------------------------------------------------------

  async #join(spot: Spot, value: string): Promise<Entered> {
    const { claim, prefix, key } = spot;
    const { header, succeeded, responses } = await this.#txn(
      [isAbsent(key), ...sameCapacity(spot)],
      [put(spot, value), { range: isExclusive(claim) ? newestTwo(prefix) : inOrder(prefix, claim) }],
      [{ range: { key: Buffer.from(key) } }, ...capacityOf(spot)],
    );
    if (!succeeded) return this.#alreadyThere(spot, responses[0]?.range?.kvs[0], responses[1]?.range?.kvs[0]);
    const revision = header!.revision;
    const line = { standings: readAll(responses[1]?.range?.kvs ?? []), at: revision };
    const found = isExclusive(claim) ? lastPlace(spot, revision, line) : place(spot, revision, onlyOf(prefix, line));
    return standingOrGone(found ?? (await this.look(spot, revision)));
  }

  async #tryToHold(spot: Spot, value: string): Promise<Entered> {
    return isExclusive(spot.claim) ? this.#takeEmpty(spot, value) : this.#takeRoom(spot, value);
  }

  /** Exclusive use: if there is nobody. */
  async #takeEmpty(spot: Spot, value: string): Promise<Entered> {
    const { prefix, key } = spot;
    const { header, succeeded, responses } = await this.#txn(
      [isEmpty(under(prefix))],
      [put(spot, value)],
      [{ range: { key: Buffer.from(key) } }, { range: { ...inOrder(prefix), limit: 1n } }],
    );
    if (succeeded) return { state: 'held', revision: header!.revision };
    const own = responses[0]?.range?.kvs[0];
    if (own) return this.#alreadyThere(spot, own);
    const first = responses[1]?.range?.kvs[0];
    // Only with keys of the user's own: another line's claim, whose name begins like this one's.
    return first && !isOf(prefix, text(first.key)) ? this.#takeRoom(spot, value) : { state: 'refused' };
  }

  /** If there is room: read the line, and enter if nobody has entered since. */
  async #takeRoom(spot: Spot, value: string): Promise<Entered> {
    const { claim, prefix, key, anyCapacity = prefix } = spot;
    for (;;) {
      const all = await this.#read(inOrder(anyCapacity));
      const own = all.standings.find((standing) => standing.key === key);
      if (own) return this.#alreadyThere(spot, own.kv);
      const { standings } = onlyOf(prefix, all);
      const other = isSemaphore(claim) && all.standings.find((standing) => !standing.key.startsWith(prefix));
      if (other) return { state: 'mismatch', capacity: capacityIn(anyCapacity, other.key) };
      const weights = [...standings.map(({ weight }) => weight), claim.weight];
      if (holders(weights, claim.capacity) < weights.length) return { state: 'refused' };
      const { from, to } = under(anyCapacity);
      const unchanged = { target: TARGET.mod, result: IS.less, key: from, rangeEnd: to, modRevision: all.at + 1n };
      const { succeeded, header } = await this.#txn([unchanged], [put(spot, value)], []);
      if (succeeded) return { state: 'held', revision: header!.revision };
    }
  }

  /** The same enter again, or a semaphore that others use with another capacity. */
  async #alreadyThere(spot: Spot, own: KeyValue | undefined, other?: KeyValue): Promise<Entered> {
    if (!own) return { state: 'mismatch', capacity: capacityIn(spot.anyCapacity ?? '', other ? text(other.key) : '') };
    return standingOrGone(await this.look(spot, own.createRevision));
  }

  /** A permit beyond those that can hold was not read with them: it waits if it is there at all. */
  async #own({ key }: Spot, found: Found): Promise<Found> {
    if (found.state !== 'waiting') return found;
    const { kvs } = await this.#client.range({ key: Buffer.from(key) }, this.#calling);
    return kvs[0]?.createRevision === found.revision ? found : { state: 'absent' };
  }

  async #read(request: Sent<typeof RangeRequest>): Promise<Line> {
    const { header, kvs } = await this.#client.range(request, this.#calling);
    return { standings: readAll(kvs), at: header!.revision };
  }

  #txn(compare: readonly Compare[], success: Ops, failure: Ops, repeatable = true): ReturnType<EtcdClient['txn']> {
    return this.#client.txn({ compare, success, failure }, { ...this.#calling, repeatable });
  }
}

// --- what a line says ---------------------------------------------------------------------------------------------

/** It was there a moment ago, and nothing but the end of its lease takes a claim away that nobody left. */
function standingOrGone(found: Found): Entered {
  return found.state === 'absent' ? { state: 'gone' } : found;
}

/** By the one rule. */
function place(spot: Spot, revision: bigint, { standings, at }: Line): Found {
  const { claim, key, prefix } = spot;
  const index = standings.findIndex((standing) => standing.key === key && standing.kv.createRevision === revision);
  if (isSemaphore(claim)) {
    const held = index !== -1 && index < heldCount(standings, claim.capacity);
    return held ? { state: 'held', revision } : { state: 'waiting', revision, obstacle: permitsWatch(prefix, at) };
  }
  if (index === -1) return { state: 'absent' };
  const before = standings.slice(0, index);
  const blocker = isExclusive(claim) ? before.at(-1) : before.findLast(({ weight }) => weight >= claim.capacity);
  return blocker ? behind(blocker, revision, at, isExclusive(claim)) : { state: 'held', revision };
}

/** The place of an exclusive claim at the end of what was read; undefined: more must be read to tell. */
function lastPlace({ key, prefix }: Spot, revision: bigint, { standings, at }: Line): Found | undefined {
  const [own, before] = standings;
  if (own?.key !== key || own.kv.createRevision !== revision) return undefined;
  if (!before) return { state: 'held', revision };
  return isOf(prefix, before.key) ? behind(before, revision, at, true) : undefined;
}

function behind({ kv }: Standing, revision: bigint, at: bigint, deletionsOnly: boolean): Found {
  return { state: 'waiting', revision, obstacle: { key: kv.key, from: at + 1n, deletionsOnly } };
}

/** Whoever leaves a semaphore after this revision. */
export function permitsWatch(prefix: string, at: bigint): WatchTarget {
  const { from, to } = under(prefix);
  return { key: from, rangeEnd: to, from: at + 1n, deletionsOnly: true };
}

/** How many at the front hold. */
export function heldCount(standings: readonly Standing[], capacity: number): number {
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

export function readAll(kvs: readonly KeyValue[]): Standing[] {
  return kvs.map((kv) => ({ key: text(kv.key), kv, weight: weightIn(kv.value) }));
}

function onlyOf(prefix: string, { standings, at }: Line): Line {
  return { standings: standings.filter(({ key }) => isOf(prefix, key)), at };
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
  try {
    const { weight, note, since, name } = JSON.parse(text(value)) as Record<keyof Written, unknown>;
    const sound = typeof note === 'string' && typeof since === 'number' && typeof name === 'string';
    if (sound && Number.isInteger(weight) && (weight as number) > 0)
      return { weight: weight as number, note, since, name };
  } catch {
    // Another program's.
  }
  return undefined;
}

/** Whatever is not ours excludes everybody. */
function weightIn(value: Uint8Array): number {
  return (value.length === 0 ? undefined : written(value)?.weight) ?? ALL;
}

export function text(bytes: Uint8Array): string {
  return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.length).toString();
}

// --- requests -----------------------------------------------------------------------------------------------------

function put({ key, lease }: Spot, value: string): Ops[number] {
  return { put: { key: Buffer.from(key), value: Buffer.from(value), lease } };
}

function isAbsent(key: string): Compare {
  return { target: TARGET.create, result: IS.equal, key: Buffer.from(key), createRevision: 0n };
}

function isEmpty({ from, to }: KeyRange): Compare {
  return { target: TARGET.create, result: IS.equal, key: from, rangeEnd: to, createRevision: 0n };
}

/** No claim of another capacity: those stand before and behind our own part of the semaphore's keys. */
function sameCapacity({ anyCapacity, prefix }: Spot): readonly Compare[] {
  if (anyCapacity === undefined) return [];
  const [all, ours] = [under(anyCapacity), under(prefix)];
  return [isEmpty({ from: all.from, to: ours.from }), isEmpty({ from: ours.to, to: all.to })];
}

function capacityOf({ anyCapacity }: Spot): Ops {
  if (anyCapacity === undefined) return [];
  const { from, to } = under(anyCapacity);
  return [{ range: { key: from, rangeEnd: to, limit: 1n, keysOnly: true } }];
}

function capacityIn(anyCapacity: string, key: string): number {
  return Number(key.slice(anyCapacity.length).split('/')[0]);
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
