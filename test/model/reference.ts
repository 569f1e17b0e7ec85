/**
 * The reference: who may be inside, until when and as what, told from what users did and from what the engine's line says.
 * It never predicts who is served next, only what must never be seen. It is asked after every event of the world, after
 * every answer to a user, and at the end of a stall before any timer has run.
 */
import type { EngineLine } from '../../src/core/engine.js';
import { ALL } from '../../src/core/line.js';
import type { Lease, LeaseLostError } from '../../src/index.js';
import type { Options, Share } from './program.js';
import { usersContext } from './taps.js';
import type { Client } from './world.js';

/** A function inside `run`, `all().run`, `once` or `lead`. */
export interface Fn {
  readonly client: Client;
  readonly how: 'run' | 'all' | 'once' | 'lead';
  readonly leases: Held[];
  ended: boolean;
  endedAt?: number;
  threw?: boolean;
}

/** A pending or settled call that asks for one lock (`all()`: one of them). */
export interface Asked {
  readonly client: Client;
  readonly what: string;
  readonly share: Share;
  readonly options: Options;
  /** What the code is inside of, innermost first. */
  readonly fns: readonly Fn[];
  readonly within: Held | undefined;
  /** `once` and `lead` never re-enter. */
  readonly reentrant: boolean;
  /** The lease that stood under the caller when it asked. */
  readonly outer: Held | undefined;
  readonly since: number;
  readonly waits: boolean;
  /** Those that `all()` asks for together. */
  readonly group: object;
  readonly closed: 'open' | 'drains' | 'closed';
  pending: boolean;
  /** It waited behind a lease in force when its instance was closed: nothing but that may be its answer. */
  doomed?: boolean;
  /** It waited inside a lease when that was released: only the real lock may be its answer. */
  expelled?: boolean;
}

/** A lease that a user was given. */
export interface Held {
  readonly slot: string;
  readonly asked: Asked;
  readonly share: Share;
  readonly weight: number;
  readonly lease: Lease;
  /** It is nested in this one: it has no claim of its own. */
  readonly outer: Held | undefined;
  /** The clock's time at which `maxHold` ends it. */
  readonly endsAt: number | undefined;
  readonly fn: Fn | undefined;
  /** What its user did to end it. */
  over: 'released' | 'downgraded' | 'ended' | undefined;
  /** When it was downgraded. */
  overAt?: number;
  /** The reader that a downgrade made of it. */
  reader: Held | undefined;
  aborted: boolean;
  endSeenAt: number | undefined;
}

export type Violate = (rule: string, what: string) => void;

/** How long a loss may go untold, a timeout overrun, or a timer be late. */
export const LATE_MS = 100;
/** What a function that ended has left behind is given back by one timer for all that end together. */
const SWEPT_MS = 5;
/** Clocks that drift are sums of fractions. */
export const ROUNDING_MS = 1e-6;

const PRESENT: unique symbol = Symbol.for('holdfast.present') as never;

export class Reference {
  grants = 0;
  /** It can't be told any more what ought to happen. */
  vague = false;
  readonly asked = new Set<Asked>();
  /** Leases that are not over, or not yet seen to be. */
  readonly #held = new Set<Held>();
  readonly #tokens = new Map<string, { used: Map<bigint, Held>; highest: Map<number, bigint> }>();
  readonly #lines: () => Iterable<EngineLine>;
  readonly #violate: Violate;
  #reading = false;

  constructor(lines: () => Iterable<EngineLine>, violate: Violate) {
    this.#lines = lines;
    this.#violate = violate;
  }

  get held(): Iterable<Held> {
    return this.#held;
  }

  // --- what users do ----------------------------------------------------------------------------------------------

  ask(call: Omit<Asked, 'outer' | 'since' | 'closed' | 'pending'>): Asked {
    const { client, fns } = call;
    // What is asked in the very moment in which a function around it ends may find that either way.
    if (fns.some((fn) => fn.endedAt === now(fn.client))) this.vague = true;
    const running = fns.some((fn) => fn.client === client && !fn.ended);
    const closed = !client.closing ? 'open' : running && now(client) < client.closing.endsAt ? 'drains' : 'closed';
    const asked: Asked = { ...call, outer: this.#outerOf(call), since: now(client), closed, pending: true };
    this.asked.add(asked);
    return asked;
  }

  /** A lease was handed to its user. */
  granted(asked: Asked, slot: string, lease: Lease, fn?: Fn): Held {
    this.grants += 1;
    const outer = asked.outer && isTokenOf(asked.outer, lease.token) ? asked.outer : undefined;
    const { share, options, client } = asked;
    const endsAt = options.maxHold === undefined ? undefined : now(client) + options.maxHold;
    const held = this.#add({ slot, asked, share, weight: share.weight, lease, outer, endsAt, fn });
    // A grant and the end of its instance may cross each other.
    if (!lease.held && !client.closing)
      this.#violate('over already', `${told(held)} was given though it was ${lease.state}`);
    if (asked.doomed) this.#violate('closed', `${told(held)} was given though its instance closed while it waited`);
    if (asked.closed === 'closed') this.#violate('closed', `${told(held)} was given after close()`);
    if (outer && asked.expelled)
      this.#violate('inside', `${told(held)} was let in to ${told(outer)}, which was released before`);
    if (outer) this.#checkNested(held, outer);
    else this.#checkRoot(held);
    return held;
  }

  downgraded(writer: Held, slot: string, lease: Lease): Held {
    const { asked, share, outer, endsAt, fn } = writer;
    const reader = this.#add({ slot, asked, share, weight: 1, lease, outer, endsAt, fn });
    writer.reader = reader;
    fn?.leases.push(reader);
    const grew = outer ? lease.token === writer.lease.token : lease.token > writer.lease.token;
    if (!grew) this.#violate('token', `${told(reader)} was made of ${told(writer)}`);
    if (!outer && lease.held) this.#checkToken(reader);
    return reader;
  }

  /** A lease is released by its user. */
  releases(outer: Held): void {
    for (const asked of this.asked) {
      const { weight, capacity } = asked.share;
      const limit = outer.share.kind === 'semaphore' ? outer.weight : capacity;
      if (asked.outer !== outer || !asked.waits) continue;
      asked.expelled ||= [...this.#held].some(
        (held) => held.outer === outer && held.weight + weight > limit && inForce(held, this),
      );
    }
  }

  /** An instance was closed. */
  closes(client: Client): void {
    for (const asked of this.asked) {
      const working = asked.fns.some((fn) => fn.client === client && !fn.ended);
      if (asked.client !== client || working) continue;
      const { key, weight, capacity } = asked.share;
      asked.doomed ||= [...this.#held].some(
        (held) => held.share.key === key && held.weight + weight > capacity && inForce(held, this),
      );
    }
  }

  /** The promise of a run has settled. Nothing of it, and nothing inside of it, is held any more. */
  runSettled(fn: Fn): void {
    for (const held of this.#held) {
      const inside = fn.leases.some((outer) => outer === held || held.outer === outer || isAbove(outer, held));
      if (inside && read(held, this).held) this.#violate('outlives', `${told(held)} outlived its run`);
    }
  }

  /** Whether an `all()` of this instance waits for one of its locks. */
  gathers(client: Client): boolean {
    return [...this.asked].some((one) => one.client === client && one.what.startsWith('all'));
  }

  /** Whether a cycle of waits that nothing would end, or an upgrade, is a reason to refuse. */
  mayRefuse(asked: Asked): boolean {
    const { fns, share, client, within } = asked;
    const mine = [
      ...fns.filter((fn) => fn.client === client).flatMap(({ leases }) => leases),
      ...(within ? [within] : []),
    ];
    if (mine.some((held) => held.share.key === share.key && (!asked.reentrant || weightNow(held) < share.weight)))
      return true;
    return this.#closesCycle(asked, asked, new Set());
  }

  // --- what must never be seen ------------------------------------------------------------------------------------

  /** At rest, every promise that could settle has. */
  look(atRest = false): void {
    const claims = new Map<string, { weight: number; held: boolean }>();
    for (const { kind, name, claims: line } of this.#lines()) {
      for (const { token, weight, state } of line)
        claims.set(`${kind} ${name} ${token}`, { weight, held: state === 'held' });
    }
    const shares = new Map<Held | string, { sum: number; limit: number; who: Held[] }>();
    for (const held of this.#held) {
      if (!held.asked.client.process.running) continue;
      const seen = read(held, this);
      this.#checkEnd(held, seen, atRest);
      if (seen.held) {
        this.#checkStanding(held, claims.get(`${held.share.key} ${held.lease.token / 1024n}`));
        this.#count(held, shares);
      } else if (held.over) this.#held.delete(held);
    }
    for (const { sum, limit, who } of shares.values()) {
      if (sum > limit) this.#violate('exclusion', `held at once: ${who.map(told).join(' and ')}`);
    }
  }

  /** Those that no held lease of their own chain covers must fit beside each other. */
  #count(held: Held, shares: Map<Held | string, { sum: number; limit: number; who: Held[] }>): void {
    let above: Held | undefined;
    for (const outer of above_(held))
      if (read(outer, this).held) {
        above = outer;
        break;
      }
    const key = above ?? held.share.key;
    const limit = above && above.share.kind === 'semaphore' ? above.weight : held.share.capacity;
    const share = shares.get(key) ?? { sum: 0, limit, who: [] };
    share.sum += held.weight;
    share.who.push(held);
    shares.set(key, share);
  }

  #checkStanding(held: Held, claim: { weight: number; held: boolean } | undefined): void {
    if (!claim?.held) return this.#violate('standing', `${told(held)} is held and does not stand in the engine's line`);
    if (claim.weight < held.weight)
      this.#violate('standing', `${told(held)} is held on a claim of weight ${claim.weight}`);
    const root = [held, ...above_(held)].at(-1)!;
    if (held.share.kind !== 'lock' || root.over === 'downgraded') return;
    const { mode } = (held.lease as unknown as { [PRESENT](): { mode: string } })[PRESENT]();
    if (mode !== (root.weight === ALL ? 'write' : 'read'))
      this.#violate('mode', `${told(held)} shows itself as ${mode}`);
  }

  #checkEnd(held: Held, seen: Seen, atRest: boolean): void {
    const { client } = held.asked;
    const ends = [held, ...above_(held)].flatMap(({ endsAt }) => (endsAt === undefined ? [] : [endsAt]));
    const leftMs = Math.min(...ends) - now(client);
    if (leftMs <= 0 && seen.held) this.#violate('maxHold', `${told(held)} is held ${-leftMs} ms after its maxHold`);
    if (seen.remaining > Math.max(0, leftMs) + 1)
      this.#violate('maxHold', `${told(held)} remains for ${seen.remaining} of ${leftMs} ms`);
    if (seen.held && held.over && (atRest || held.over !== 'ended'))
      this.#violate('over', `${told(held)} was ${held.over} and is held`);
    if (seen.held && held.aborted) this.#violate('over', `${told(held)} is held, and its signal has aborted`);
    if (seen.held && [...above_(held)].some((outer) => read(outer, this).state === 'lost')) {
      this.#violate('over', `${told(held)} is held, and what it is nested in was lost`);
    }
    this.#checkClose(held, seen);
    if (seen.held) held.endSeenAt = undefined;
    else held.endSeenAt ??= Math.max(now(client), client.resumedAt);
    const untoldMs = now(client) - Math.max(held.endSeenAt ?? Infinity, client.resumedAt);
    if (!held.over && !held.aborted && untoldMs > LATE_MS)
      this.#violate('untold', `${told(held)} ended and its signal did not abort`);
  }

  /** While it drains, running functions keep what they hold; what nobody runs inside of is released at once. */
  #checkClose({ asked, fn, over, lease, slot }: Held, seen: Seen): void {
    const { closing, resumedAt } = asked.client;
    if (!closing || over) return;
    const t = now(asked.client);
    const running = fn && fn.how !== 'lead' && !fn.ended;
    if (running && seen.state === 'released' && t < closing.endsAt - ROUNDING_MS) {
      this.#violate('drain', `close() took ${slot} from a running function ${closing.endsAt - t} ms too early`);
    }
    const loose = asked.fns.every((around) => around.ended || around.client !== asked.client);
    const endedAt = Math.max(...asked.fns.map((around) => around.endedAt ?? 0));
    const since = Math.max(Math.max(closing.at, resumedAt) + LATE_MS, endedAt + SWEPT_MS);
    if (seen.held && t > since && (fn ? fn.how === 'lead' && asked.closed === 'open' && lease.held : loose)) {
      this.#violate('drain', `close() has not ended ${slot}`);
    }
    if (seen.held && t > Math.max(closing.endsAt, resumedAt) + LATE_MS)
      this.#violate('drain', `${slot} is held after the drain`);
  }

  #checkNested(held: Held, outer: Held): void {
    const { within, client } = held.asked;
    if (within && within.asked.client !== client)
      this.#violate('within', `${told(held)} is inside a lease of another instance`);
    // What all() got before the downgrade is only handed out with the rest.
    const early = outer.overAt === now(client) || held.asked.what.startsWith('all');
    if (held.weight > weightNow(outer) && !early)
      this.#violate('upgrade', `${told(held)} was given inside ${told(outer)}, which is ${outer.over ?? 'lighter'}`);
  }

  /** It stands in the engine's line itself: its token is new, and larger than of any that it may not coexist with. */
  #checkRoot(held: Held): void {
    const { outer, within } = held.asked;
    if (within) this.#violate('within', `${told(held)} is not inside the lease that within named`);
    if (outer && inForce(outer, this)) this.#violate('re-entrancy', `${told(held)} is not nested in ${told(outer)}`);
    const other = this.#record(held).used.get(held.lease.token);
    if (other) this.#violate('token', `${told(held)} has the token of ${told(other)}, which it is not inside of`);
    this.#checkToken(held);
  }

  #checkToken(held: Held): void {
    const { used, highest } = this.#record(held);
    const { token } = held.lease;
    for (const [weight, high] of highest) {
      if (weight + held.weight > held.share.capacity && token <= high)
        this.#violate('token', `${told(held)} comes after ${high}`);
    }
    used.set(token, held);
    if (token > (highest.get(held.weight) ?? 0n)) highest.set(held.weight, token);
  }

  #record({ share }: Held): { used: Map<bigint, Held>; highest: Map<number, bigint> } {
    let record = this.#tokens.get(share.key);
    if (!record) this.#tokens.set(share.key, (record = { used: new Map(), highest: new Map() }));
    return record;
  }

  #add(fields: Omit<Held, 'over' | 'reader' | 'aborted' | 'endSeenAt'>): Held {
    const held: Held = { ...fields, over: undefined, reader: undefined, aborted: false, endSeenAt: undefined };
    this.#held.add(held);
    held.aborted = held.lease.signal.aborted;
    held.lease.signal.addEventListener('abort', () => {
      held.aborted = true;
      if (usersContext.getStore())
        this.#violate('context', `an abort handler of ${told(held)} ran in the context of a user`);
      if (this.#reading) this.#violate('pure', `an abort handler of ${told(held)} ran inside a getter`);
    });
    return held;
  }

  /** The lease that code asking for this is inside of now. */
  #outerOf({
    client,
    fns,
    share,
    within,
    reentrant,
  }: Omit<Asked, 'outer' | 'since' | 'closed' | 'pending'>): Held | undefined {
    if (within) return within;
    if (!reentrant) return undefined;
    for (const fn of fns) {
      if (fn.client !== client || fn.ended) continue;
      const held = fn.leases.findLast((lease) => lease.share.key === share.key);
      // A downgrade that is under way is a reader's inside already.
      if (held && (inForce(held, this) || (held.over === 'downgraded' && !held.reader))) return held;
    }
    return undefined;
  }

  #closesCycle(asked: Asked, start: Asked, seen: Set<Asked>): boolean {
    if (seen.has(asked)) return false;
    seen.add(asked);
    const { client } = start;
    const onLine = [...this.asked].filter(
      (other) => other.pending && other.client === client && other.share.key === asked.share.key,
    );
    const writers = onLine.some((other) => other !== asked && other.share.weight === ALL);
    const around = new Set<Fn | object>();
    for (const held of this.#held) {
      if (held.asked.client !== client || held.share.key !== asked.share.key || held.endsAt !== undefined) continue;
      if (held.weight + asked.share.weight <= held.share.capacity && !writers && held.share.kind === 'lock') continue;
      for (const fn of held.fn ? [held.fn, ...held.asked.fns] : held.asked.fns) around.add(fn);
    }
    // all() may have some of its locks while it waits for others.
    for (const other of onLine) if (other !== asked) around.add(other.group);
    if (start.fns.some((fn) => around.has(fn)) || (asked !== start && around.has(start.group))) return true;
    return [...this.asked].some((other) => {
      const endless =
        other.pending && other.waits && other.options.timeout === undefined && other.options.abortAfter === undefined;
      const inside = around.has(other.group) || other.fns.some((fn) => around.has(fn));
      return endless && inside && this.#closesCycle(other, start, seen);
    });
  }

  /** Reads all that is public about a lease, twice, which must change nothing. */
  read({ lease, ...held }: Held): Seen {
    this.#reading = true;
    try {
      const seen = { held: lease.held, state: lease.state, remaining: lease.remaining };
      const asserted = asserts(lease);
      JSON.stringify(lease);
      const again = lease.held;
      const sound = seen.held === again && seen.held === asserted && seen.held === seen.remaining > 0;
      const ended = seen.state === 'lost' || seen.state === 'released';
      if (!sound || (seen.held && ended))
        this.#violate('pure', `${held.slot} says ${JSON.stringify({ ...seen, again, asserted })}`);
      return seen;
    } finally {
      this.#reading = false;
    }
  }
}

interface Seen {
  readonly held: boolean;
  readonly state: string;
  readonly remaining: number;
}

function read(held: Held, reference: Reference): Seen {
  return reference.read(held);
}

function asserts(lease: Lease): boolean {
  try {
    lease.assertHeld();
    return true;
  } catch (error) {
    if ((error as LeaseLostError).code === 'HOLDFAST_LOST') return false;
    throw error;
  }
}

export function inForce(held: Held, reference: Reference): boolean {
  const ended = held.endsAt !== undefined && now(held.asked.client) >= held.endsAt;
  return !held.over && !ended && reference.read(held).held;
}

/** What it is nested in, from the inside out, with the readers that downgrades made of those. */
function* above_(held: Held): Iterable<Held> {
  for (let outer = held.outer; outer; outer = outer.outer) {
    for (let reader: Held | undefined = outer; reader; reader = reader.reader) yield reader;
  }
}

function isAbove(outer: Held, held: Held): boolean {
  return [...above_(held)].includes(outer);
}

function isTokenOf(outer: Held, token: bigint): boolean {
  // The reader's own lease comes when the downgrade is done; its token is the next of the same claim.
  if (outer.over === 'downgraded' && !outer.reader && token === outer.lease.token + 1n) return true;
  return outer.lease.token === token || (outer.reader !== undefined && isTokenOf(outer.reader, token));
}

function weightNow(held: Held): number {
  return held.over === 'downgraded' ? 1 : held.weight;
}

export function now({ process }: Client): number {
  return process.clock.now();
}

export function told({ slot, asked, share, weight, lease }: Held): string {
  const part = weight === ALL ? 'ALL' : weight;
  return `${slot} (${share.key}, ${part}, token ${lease.token}, of ${asked.client.name})`;
}
