/**
 * The protocol: how a line stands in ZooKeeper, and the steps on it.
 *
 * A session is a session of ZooKeeper. A claim is an ephemeral sequential node, so it goes when the session does; keys.ts has the
 * names. Its data is {note, name} in JSON, and after a downgrade {token, since} too. Its number is its place in line. Its
 * *czxid*, the transaction that made it, is its token: agreed by a majority, and never given twice. (The number would not
 * do: it has 32 bits, and begins anew when the line's node was removed.)
 *
 *     order by number →  [3 writer, held] | [4 reader, waits][7 reader, waits][9 writer, waits]
 *                                             watches 3        watches 3        watches 7
 *
 * Who holds follows from the names of the line's nodes alone, by the one rule of core/line.ts; nobody writes it down. So a grant
 * is no message: a waiting claim watches what stands in its way, and looks again when that is gone.
 * - A writer or mutex holds if nobody stands before it. It watches the claim right before it: one wake-up per release.
 * - A reader holds if no writer stands before it. It watches the nearest of those. A downgrade swaps its node for another of the
 *   same number, in one step, so its watchers look again too.
 * - A permit watches its whole line, because any that goes may make room.
 *
 * A server may be behind the others, but never behind what it told us before, the making of our node for one. Whoever stands
 * before us stood there by then. So a list that is old shows too many before us, never too few, and nobody is granted by it
 * who does not hold. That the node is our own session's is looked at before each grant: one that was left over by another
 * session, or whose session has ended, must not be granted.
 *
 * Entering is idempotent: the name has the claim's id in it. When the answer to a create is lost, the line is looked through
 * for the id before another is made; a `sync` before that brings in whatever was still on its way. Claims that would not
 * wait look first, and make a node only if it would hold; if another was quicker, it goes at once.
 *
 * Curator's mutex takes whatever it does not know for younger than itself, and so does its read/write lock: they see our claims
 * of their own kind, and only these. We take theirs for what their names say.
 *
 * What can go wrong: a restored backup takes transactions back, and with them tokens (docs/engines/zookeeper.md).
 */
import type { Claim, ClaimRef, LineRef } from '../../core/engine.js';
import { holders } from '../../core/line.js';
import type { Entered, Footing, Found } from '../../kit/ephemeral-session.js';
import { foreignBigint, foreignFields } from '../../kit/foreign-json.js';
import type { ZooKeeperClient } from './client/client.js';
import type { Stat } from './client/messages.js';
import { CODE, isStatus, ZooKeeperError } from './client/status.js';
import { EmptyLines } from './empty-lines.js';
import { byNumber, type ClaimName, nodeOf, nodePrefix, parseNode, readerPath } from './keys.js';

/** Where a claim of ours is to stand. */
export interface ClaimSpot {
  readonly claim: Claim;
  /** The node of its line. */
  readonly line: string;
}

/** A claim's node. */
export interface NodeFooting extends Footing {
  readonly path: string;
  /** Epoch milliseconds by the leader's clock. */
  readonly since: number;
}

/** What is in the way of a claim that waits. */
export interface Obstacle {
  readonly kind: 'data' | 'children';
  readonly path: string;
}

/** A node of ours, and the line that it stands in as it was then. */
interface Made {
  readonly footing: NodeFooting;
  /** Undefined: there is nobody else in it. */
  readonly names: readonly string[] | undefined;
}

export type NodeFound = Found<NodeFooting, Obstacle>;
export type NodeEntered = Entered<NodeFooting, Obstacle>;

/** How often a try that was overtaken looks again before it is refused, and a line is made that is gone at once. */
const TRIES = 3;

export class Lines {
  readonly #client: ZooKeeperClient;
  readonly #empty = new EmptyLines();

  constructor(client: ZooKeeperClient) {
    this.#client = client;
  }

  /** @param doubtful it was asked for before, and the answer was lost. */
  async enter(spot: ClaimSpot, data: string, doubtful: boolean): Promise<NodeEntered> {
    const made = doubtful ? await this.find(spot) : undefined;
    if (made) return this.#judge(spot, made);
    return spot.claim.wait ? this.#judge(spot, await this.#make(spot, data)) : this.#tryToHold(spot, data);
  }

  /** Where a claim of ours stands now, by its own node and those before it. */
  async look(spot: ClaimSpot, footing: NodeFooting): Promise<NodeFound> {
    const [{ names }, stat] = await Promise.all([this.#children(spot), this.#client.exists(footing.path)]);
    if (stat?.ephemeralOwner !== this.#client.sessionId) return { state: 'absent' };
    const found = place(spot, footing, names);
    if (found.state === 'held') this.#empty.holds(spot, footing);
    return found;
  }

  /**
   * Our node in a line, however it got there; undefined: there is none, nor will there be. A create can't come late over a
   * connection that we gave up: the servers close that one, or refuse what comes over it, before they take us back.
   */
  async find(spot: Pick<ClaimSpot, 'line'> & { readonly claim: ClaimRef }): Promise<Made | undefined> {
    const { claim, line } = spot;
    const [, { names }] = await Promise.all([this.#client.sync(), this.#children(spot)]);
    const own = claimsIn(names, claim.line.kind).find(({ id }) => id === claim.id);
    if (!own) return undefined;
    const path = `${line}/${own.node}`;
    const stat = await this.#client.exists(path);
    return stat?.ephemeralOwner === this.#client.sessionId ? { footing: footingAt(path, stat), names } : undefined;
  }

  /** Takes a node away that nobody stands for. If that fails, the next beat finds it again. */
  discard(path: string): void {
    this.#client.delete(path).catch(() => {});
  }

  /** A semaphore's claims in order; whoever watches hears of the next that comes or goes. */
  async permits(line: string, watcher?: () => void): Promise<readonly ClaimName[]> {
    const { names } = await this.#client.getChildren(line, watcher);
    return claimsIn(names, 'semaphore');
  }

  /** False: it did not stand there. Repeated until it is known to be gone. */
  leave(footing: NodeFooting, withinMs: number): Promise<boolean> {
    return this.#client.insist(withinMs, async (attempt) => {
      try {
        const zxid = await this.#client.delete(footing.path);
        this.#empty.left(footing, zxid);
        return true;
      } catch (error) {
        if (!isStatus(error, CODE.noNode)) throw error;
        this.#empty.dropped(footing);
        // Whether it was the try before that did it nobody can tell. It is gone, and that is enough.
        return attempt > 0;
      }
    });
  }

  /** Its node becomes a reader's of the same number; its token stays. */
  async lighten(footing: NodeFooting, data: string): Promise<NodeFooting> {
    const { path } = footing;
    const reader = { ...footing, path: readerPath(path) };
    if (reader.path === path) return reader;
    this.#empty.dropped(footing);
    try {
      const made = { step: 'create', path: reader.path, data: Buffer.from(data), mode: 'ephemeral' } as const;
      await this.#client.multi([{ step: 'delete', path }, made]);
    } catch (error) {
      // Done already, by a try whose answer was lost; or the claim is gone, and the next beat says so.
      if (!isStatus(error, CODE.noNode, CODE.nodeExists)) throw error;
    }
    return reader;
  }

  // --- entering -------------------------------------------------------------------------------------------------

  async #tryToHold(spot: ClaimSpot, data: string): Promise<NodeEntered> {
    for (let attempt = 1; ; attempt += 1) {
      // A server that is behind shows claims that have left: who is refused by an old list was refused by nobody.
      const [, { names }] = await Promise.all([this.#client.sync(), this.#children(spot)]);
      const capacity = otherCapacity(spot, names);
      if (capacity !== undefined) return { state: 'mismatch', capacity };
      if (!hasRoom(spot, names)) return { state: 'refused' };
      const entered = await this.#judge(spot, await this.#make(spot, data));
      if (entered.state !== 'refused' || attempt === TRIES) return entered;
    }
  }

  /** What is to become of a node that was made. */
  async #judge(spot: ClaimSpot, { footing, names }: Made): Promise<NodeEntered> {
    if (!names) {
      this.#empty.holds(spot, footing);
      return { state: 'held', footing };
    }
    const capacity = otherCapacity(spot, names, footing);
    if (capacity !== undefined) {
      await this.#client.delete(footing.path).catch(unlessGone);
      return { state: 'mismatch', capacity };
    }
    const found = place(spot, footing, names);
    if (found.state === 'held') this.#empty.holds(spot, footing);
    if (found.state === 'waiting' && !spot.claim.wait) {
      await this.#client.delete(footing.path).catch(unlessGone);
      return { state: 'refused' };
    }
    // It was there a moment ago, and nothing but the end of its session takes a claim away that nobody left.
    return found.state === 'absent' ? { state: 'gone' } : found;
  }

  /** A node, and the line as it was after that, in one round trip where the line's node is there. */
  async #make(spot: ClaimSpot, data: string): Promise<Made> {
    const { claim, line } = spot;
    const prefix = `${line}/${nodePrefix(claim)}`;
    for (let attempt = 1; ; attempt += 1) {
      const creating = this.#client.create(prefix, { data: Buffer.from(data), mode: 'ephemeral-sequential' });
      const listing = this.#empty.has(line) ? undefined : this.#children(spot);
      try {
        const [{ path, stat }, listed] = await Promise.all([creating, listing]);
        this.#mustBeOurs(stat);
        const footing = footingAt(path, stat);
        if (this.#empty.isAlone(footing)) return { footing, names: undefined };
        return { footing, names: (listed ?? (await this.#children(spot))).names };
      } catch (error) {
        if (!isStatus(error, CODE.noNode)) throw error;
        if (attempt === TRIES) throw new ZooKeeperError(CODE.runtimeInconsistency);
      }
      // Gone since, or never there: servers remove a line's node when it has been empty for a while.
      this.#empty.forget(line);
      await this.#client.make(line, 'container');
    }
  }

  #mustBeOurs({ ephemeralOwner }: Stat): void {
    if (ephemeralOwner !== this.#client.sessionId)
      throw new ZooKeeperError(CODE.connectionLoss, { detail: 'a node that is not of our session' });
  }

  #children({ line }: Pick<ClaimSpot, 'line'>): Promise<{ readonly names: readonly string[] }> {
    return this.#client.getChildren(line).catch(orEmpty);
  }
}

function footingAt(path: string, { czxid, ctime }: Stat): NodeFooting {
  return { path, token: czxid, since: Number(ctime) };
}

// --- what a line says ---------------------------------------------------------------------------------------------

/** By the one rule. */
function place(spot: ClaimSpot, footing: NodeFooting, names: readonly string[]): NodeFound {
  const { claim, line } = spot;
  const own = parseNode(nodeOf(footing.path), claim.line.kind);
  if (!own || !names.includes(own.node)) return { state: 'absent' };
  if (claim.line.kind === 'semaphore') {
    const claims = claimsIn(names, 'semaphore');
    const held = claims.findIndex(({ node }) => node === own.node) < heldCount(claims, claim.capacity);
    return held
      ? { state: 'held', footing }
      : { state: 'waiting', footing, obstacle: { kind: 'children', path: line } };
  }
  const blocker = nearestBefore(own, names);
  if (!blocker) return { state: 'held', footing };
  return { state: 'waiting', footing, obstacle: { kind: 'data', path: `${line}/${blocker.node}` } };
}

/** The last of those before it that it has to wait for: for a reader, of those that exclude it. No sort: lines may be long. */
function nearestBefore(own: ClaimName, names: readonly string[]): ClaimName | undefined {
  const reads = own.weight < own.capacity;
  let nearest: ClaimName | undefined;
  for (const name of names) {
    const other = parseNode(name, 'lock');
    if (!other || byNumber(other, own) >= 0 || (reads && other.weight < other.capacity)) continue;
    if (!nearest || byNumber(other, nearest) > 0) nearest = other;
  }
  return nearest;
}

/** Whether a claim that entered now would hold. */
function hasRoom({ claim }: ClaimSpot, names: readonly string[]): boolean {
  const weights = [...claimsIn(names, claim.line.kind).map(({ weight }) => weight), claim.weight];
  return holders(weights, claim.capacity) === weights.length;
}

/** The capacity that others use this semaphore with: whoever came first decides. */
function otherCapacity({ claim }: ClaimSpot, names: readonly string[], own?: NodeFooting): number | undefined {
  if (claim.line.kind !== 'semaphore') return undefined;
  const claims = claimsIn(names, 'semaphore');
  const before = own ? claims.findIndex(({ node }) => node === nodeOf(own.path)) : claims.length;
  return claims.slice(0, Math.max(0, before)).find(({ capacity }) => capacity !== claim.capacity)?.capacity;
}

/** In line order. */
export function claimsIn(names: readonly string[], kind: LineRef['kind']): ClaimName[] {
  return names.flatMap((name) => parseNode(name, kind) ?? []).sort(byNumber);
}

/** How many at the front hold. */
export function heldCount(claims: readonly ClaimName[], capacity: number): number {
  return holders(
    claims.map(({ weight }) => weight),
    capacity,
  );
}

/** What a claim's data says. */
export interface Written {
  readonly note: string;
  readonly name: string;
  /** Of a claim that was downgraded: those of the node before. */
  readonly token?: string;
  readonly since?: number;
}

/** Undefined: not written by us. */
export function written(data: Buffer): Written | undefined {
  const { note, name, token, since } = foreignFields(data.toString());
  if (typeof note !== 'string' || typeof name !== 'string') return undefined;
  const first = foreignBigint(token);
  return { note, name, ...(first !== undefined && typeof since === 'number' && { token: `${first}`, since }) };
}

// --- answers ------------------------------------------------------------------------------------------------------

/** A line without a node has nobody in it. */
function orEmpty(error: unknown): { readonly names: readonly string[] } {
  if (isStatus(error, CODE.noNode)) return { names: [] };
  throw error;
}

function unlessGone(error: unknown): void {
  if (!isStatus(error, CODE.noNode)) throw error;
}
