/** Plays the steps of a program against the public API, and tells the reference what was asked, given and let go. */
import { AsyncResource } from 'node:async_hooks';
import type { AcquireOptions, HoldfastError, Lease, Leases, Lock, WriteLease } from '../../src/index.js';
import { PERMITS, type LockRef, type Options, shareOf, type Share, type Step, type Steps } from './program.js';
import {
  type Asked,
  type Fn,
  type Held,
  inForce,
  LATE_MS,
  now,
  type Reference,
  ROUNDING_MS,
  told,
  type Violate,
} from './reference.js';
import { usersContext } from './taps.js';
import type { Client, World } from './world.js';

/** Where a step is: what its code is inside of, innermost first. */
interface Place {
  readonly client: Client;
  readonly fns: readonly Fn[];
}

/** A promise of Holdfast's that must settle, by this time where there is one. */
interface Promised {
  readonly what: string;
  readonly client: Client;
  readonly since: number;
  dueAt: number | undefined;
  /** How long it may take after a stall: a timer is due at once, a call may go on to its deadline. */
  readonly graceMs: number;
}

class Thrown extends Error {}
const ABORTED = new Error('aborted by the program');
/** Frozen: what a user throws is passed on as it is. */
const THROWN = Object.freeze(new Thrown('thrown by the program'));

const MOST_TERMS = 3;

export class Player {
  readonly #world: World;
  readonly #reference: Reference;
  readonly #violate: Violate;
  readonly #log: (who: string, what: string) => void;
  readonly #slots = new Map<string, Held>();
  readonly #promised = new Set<Promised>();
  #playing = 0;

  constructor(world: World, reference: Reference, violate: Violate, log: (who: string, what: string) => void) {
    this.#world = world;
    this.#reference = reference;
    this.#violate = violate;
    this.#log = log;
  }

  /** Whether every list of steps that was begun has ended, and every promise settled. */
  get done(): boolean {
    return this.#playing === 0 && this.#promised.size === 0;
  }

  get unsettled(): readonly Promised[] {
    return [...this.#promised];
  }

  async play(steps: Steps, place: Place): Promise<void> {
    this.#playing += 1;
    try {
      for (const step of steps) {
        await this.#step(step, place);
        if (place.client.process.running) this.#reference.look();
      }
    } finally {
      this.#playing -= 1;
    }
  }

  /** Plays steps that nobody waits for. */
  begin(steps: Steps, place: Place): void {
    const played = usersContext.run(true, () => this.play(steps, place));
    played.catch((error: unknown) => {
      if (error !== THROWN) this.#violate('error', `a step failed: ${String((error as Error).stack ?? error)}`);
    });
  }

  checkTimes(): void {
    for (const { name, closed, timers } of this.#world.clients)
      if (closed && timers.size > 0) this.#violate('alive', `a timer of ${name} outlives close()`);
    for (const promised of this.#promised) {
      const { client, dueAt, what, since, graceMs } = promised;
      if (dueAt === undefined || !client.process.running) continue;
      if (now(client) <= Math.max(dueAt, client.resumedAt + graceMs)) continue;
      promised.dueAt = undefined;
      this.#violate('late', `${what} has not settled after ${(now(client) - since).toFixed(0)} ms`);
    }
  }

  /** Lets go of all that users hold: at the end of a program everybody does. */
  releaseAll(): void {
    for (const held of this.#reference.held) {
      if (held.over || (held.fn && !held.fn.ended)) continue;
      void this.#release(held, { client: held.asked.client, fns: [] });
    }
  }

  close(client: Client, drain?: number): Promise<string> {
    return this.#close({ do: 'close', ...(drain !== undefined && { drain }) }, { client, fns: [] });
  }

  // --- steps ------------------------------------------------------------------------------------------------------

  async #step(step: Step, place: Place): Promise<void> {
    const startedAt = now(place.client);
    this.#log(
      place.client.name,
      `${step.do} ${'lock' in step ? step.lock : 'locks' in step ? step.locks.join('+') : 'name' in step ? step.name : 'lease' in step ? step.lease : ''}${'as' in step ? ` as ${step.as}` : ''}`,
    );
    let outcome: string;
    try {
      outcome = await this.#perform(step, place);
    } catch (error) {
      if (step.do === 'throw' || step.do === 'together' || error !== THROWN) throw error;
      outcome = 'thrown';
    }
    const tookMs = now(place.client) - startedAt;
    this.#log(place.client.name, `  ${step.do}${'as' in step ? ` as ${step.as}` : ''} → ${outcome}`);
    if (step.expect !== undefined && step.expect !== outcome) {
      this.#violate('expected', `${JSON.stringify({ ...step, body: undefined })} ended with ${outcome}`);
    }
    if (step.withinMs !== undefined && tookMs > step.withinMs) {
      this.#violate('expected', `${JSON.stringify({ ...step, body: undefined })} took ${tookMs.toFixed(0)} ms`);
    }
  }

  #perform(step: Step, place: Place): Promise<string> | string {
    switch (step.do) {
      case 'run':
        return this.#run(step, place);
      case 'acquire':
      case 'try':
        return this.#acquire(step, place);
      case 'all':
        return this.#all(step, place);
      case 'lead':
        return this.#lead(step, place);
      case 'once':
        return this.#once(step, place);
      case 'release':
        return this.#with(step.lease, (held) => this.#release(held, place));
      case 'downgrade':
        return this.#with(step.lease, (held) => this.#downgrade(held, step.as, place));
      case 'get':
      case 'set':
        return this.#with(step.lease, (held) => this.#present(held, step.do, place));
      case 'onLost':
        return this.#with(step.lease, (held) => this.#onLost(held, step.steps, place));
      case 'evict':
        return this.#evict(step, place);
      case 'close':
        return this.#close(step, place);
      case 'throw':
      case 'together':
      case 'detach':
      case 'pause':
      case 'stall':
      case 'fault':
        break;
    }
    return this.#others(step, place);
  }

  async #others(step: Step, place: Place): Promise<string> {
    const { client } = place;
    if (step.do === 'throw') throw THROWN;
    if (step.do === 'together') await Promise.all(step.branches.map((steps) => this.play(steps, place)));
    else if (step.do === 'detach') this.begin(step.steps, place);
    else if (step.do === 'pause') await client.process.sleep(step.ms);
    else if (step.do === 'stall') await this.#world.stall(client, step.ms, () => this.#reference.look());
    else if (step.do === 'fault') this.#world.strike(client, step.what, step.ms);
    return 'done';
  }

  async #run({ lock, as, options = {}, body }: Step & { do: 'run' }, place: Place): Promise<string> {
    const asked = this.#ask(place, `run ${lock}`, [shareOf(lock, options)], options);
    const call = this.#promise(`run of ${lock}`, place.client);
    let fn: Fn | undefined;
    const inside = (lease: Lease): Promise<void> => {
      fn = this.#enter(asked, 'run', [[as, lease]]);
      return this.#inside(fn, body, place);
    };
    return this.#settle(asked, call, () => fn, lockOf(place.client, lock).run(this.#options(options, place), inside));
  }

  async #acquire(step: Step & { do: 'acquire' | 'try' }, place: Place): Promise<string> {
    const { lock: ref, as, options = {} } = step;
    const waits = step.do === 'acquire';
    const asked = this.#ask(place, `${step.do} ${ref}`, [shareOf(ref, options)], options, { waits });
    const lock = lockOf(place.client, ref);
    const { timeout: _, ...tries } = this.#options(options, place);
    const lease = await this.#granted(
      asked,
      waits ? lock.acquire(this.#options(options, place)) : lock.tryAcquire(tries),
    );
    if (typeof lease !== 'object') return lease ?? 'busy';
    this.#slots.set(as, this.#reference.granted(asked[0]!, as, lease));
    return 'granted';
  }

  async #all({ locks, as, options = {}, body }: Step & { do: 'all' }, place: Place): Promise<string> {
    const { client } = place;
    const { within: _, permits: __, ...plain } = options;
    const refs = locks.map((ref) => lockOf(client, ref));
    const all = client.locks.all(refs);
    const asked = this.#ask(
      place,
      `all ${locks.join('+')}`,
      locks.map((ref) => shareOf(ref)),
      plain,
    );
    const named = (leases: Leases): [string, Lease][] => refs.map((ref, index) => [`${as}${index}`, leases.of(ref)]);
    if (!body) {
      const leases = await this.#granted(asked, all.acquire(this.#options(plain, place)));
      if (typeof leases !== 'object') return leases ?? 'busy';
      named(leases).forEach(([slot, lease], index) =>
        this.#slots.set(slot, this.#reference.granted(asked[index]!, slot, lease)),
      );
      return 'granted';
    }
    let fn: Fn | undefined;
    const inside = (leases: Leases): Promise<void> => {
      fn = this.#enter(asked, 'all', named(leases));
      return this.#inside(fn, body, place);
    };
    const call = this.#promise(`run of ${locks.join('+')}`, client);
    return this.#settle(asked, call, () => fn, all.run(this.#options(plain, place), inside));
  }

  async #lead({ name, as, body }: Step & { do: 'lead' }, place: Place): Promise<string> {
    const ask = (): Asked[] => this.#ask(place, `lead ${name}`, [shareOf(`mutex ${name}`)], {}, { reentrant: false });
    const call = this.#promise(`lead of ${name}`, place.client);
    let asked = ask();
    let fn: Fn | undefined;
    let terms = 0;
    const inside = async (term: Lease): Promise<void> => {
      // It campaigns again after a loss.
      if (!asked[0]!.pending) asked = ask();
      fn = this.#enter(asked, 'lead', [[as, term]]);
      terms += 1;
      // One that evicts itself would lead for ever.
      await this.#inside(fn, terms > MOST_TERMS ? [] : body, place);
    };
    return this.#settle(asked, call, () => fn, place.client.locks.election(name).lead(inside));
  }

  async #once({ name, as, atLeast, atMost, body }: Step & { do: 'once' }, place: Place): Promise<string> {
    const options = atMost === undefined ? {} : { maxHold: atMost };
    const asked = this.#ask(place, `once ${name}`, [shareOf(`mutex ${name}`)], options, {
      reentrant: false,
      waits: false,
    });
    const call = this.#promise(`once of ${name}`, place.client);
    let fn: Fn | undefined;
    const inside = async (lease: Lease): Promise<void> => {
      fn = this.#enter(asked, 'once', [[as, lease]]);
      await this.#inside(fn, body, place);
    };
    const spec = { ...(atLeast !== undefined && { atLeast }), ...(atMost !== undefined && { atMost }) };
    const once = place.client.locks.once(name, spec, inside).then(({ ran }) => (ran ? 'ran' : 'busy'));
    return this.#settle(asked, call, () => fn, once);
  }

  async #release(held: Held, place: Place): Promise<string> {
    const { client } = held.asked;
    if (!held.over) this.#reference.releases(held);
    held.over ??= 'released';
    // Called inside of an inner lease it does not wait for that one; for others it may.
    const inner = [...this.#reference.held].filter((other) => other.outer === held && inForce(other, this.#reference));
    const mine = inner.every(({ fn, asked }) => (fn ? place.fns.includes(fn) : asked.fns[0] === place.fns[0]));
    const dueAt = mine ? now(client) + client.ttlMs / 3 + LATE_MS : undefined;
    const call = this.#promise(`release of ${held.slot}`, client, dueAt);
    try {
      return String(await held.lease.release());
    } catch (error) {
      this.#violate('error', `release() of ${told(held)} threw ${String(error)}`);
      return codeOf(error);
    } finally {
      this.#promised.delete(call);
    }
  }

  async #downgrade(held: Held, as: string, { fns }: Place): Promise<string> {
    const lease = held.lease as WriteLease;
    if (!held.asked.what.includes('write') || held.weight === 1) return 'nothing';
    const call = this.#promise(`downgrade of ${held.slot}`, held.asked.client);
    const wasOver = held.over !== undefined;
    // It would wait for the code that asks for it.
    const inside = !wasOver && fns.some((fn) => fn.leases.some((one) => isInside(one, held) && one.over === undefined));
    if (!inside) {
      held.over ??= 'downgraded';
      held.overAt ??= now(held.asked.client);
    }
    try {
      const reader = await lease.downgrade();
      if (inside) this.#violate('deadlock', `${told(held)} was downgraded by code inside it`);
      if (wasOver) this.#violate('over', `${told(held)} was over and has been downgraded`);
      const made = this.#reference.downgraded(held, as, reader);
      this.#slots.set(as, made);
      if (held.fn?.ended) made.over = 'ended';
      return 'granted';
    } catch (error) {
      if (codeOf(error) !== 'HOLDFAST_LOST' && !(inside && codeOf(error) === 'HOLDFAST_DEADLOCK'))
        this.#violate('error', `downgrade: ${String(error)}`);
      return codeOf(error);
    } finally {
      this.#promised.delete(call);
    }
  }

  /** Who holds is never refused by the fence. */
  async #present(held: Held, how: 'get' | 'set', { client, fns }: Place): Promise<string> {
    const register = held.asked.client.locks.register(held.share.name);
    const call = this.#promise(`register.${how} with ${held.slot}`, client);
    const closed = held.asked.client.closing !== undefined;
    const outside = closed && fns.every((fn) => fn.ended && fn.endedAt !== now(client));
    const held1 = inForce(held, this.#reference);
    try {
      await (how === 'get' ? register.get(held.lease) : register.set('x', held.lease));
      if (outside) this.#violate('closed', `register.${how} went through after close()`);
      return 'done';
    } catch (error) {
      const code = codeOf(error);
      const root = rootOf(held);
      const mayNot =
        held.share.kind === 'semaphore' || (how === 'set' && (root.weight === 1 || root.over === 'downgraded'));
      if (code === 'HOLDFAST_STALE_TOKEN' && held1 && inForce(held, this.#reference)) {
        this.#violate('fence', `${told(held)} is held, and its token was refused: ${(error as Error).message}`);
      } else if (code === 'HOLDFAST_CONFIG' && !mayNot && !closed) {
        this.#violate('fence', `${told(held)} may not ${how}: ${(error as Error).message}`);
      } else if (!['HOLDFAST_STALE_TOKEN', 'HOLDFAST_CONFIG', 'HOLDFAST_ENGINE', 'HOLDFAST_CLOSED'].includes(code)) {
        this.#violate('error', `register.${how}: ${String(error)}`);
      }
      return code;
    } finally {
      this.#promised.delete(call);
    }
  }

  #onLost(held: Held, steps: Steps, place: Place): string {
    const { signal } = held.lease;
    const begin = AsyncResource.bind(() => this.begin(steps, place));
    if (!signal.aborted) signal.addEventListener('abort', begin);
    return 'done';
  }

  async #evict({ name, place: at }: Step & { do: 'evict' }, { client, fns }: Place): Promise<string> {
    const call = this.#promise(`evict of ${name}`, client);
    const closed = client.closing !== undefined && fns.every((fn) => fn.ended && fn.endedAt !== now(client));
    try {
      const { claims } = await this.#lookedAt(client, name, () => client.locks.mutex(name).inspect());
      JSON.stringify(claims);
      const claim = claims[at];
      const evicted = claim !== undefined && (await client.locks.evict(name, claim.id, 'by the program'));
      if (closed) this.#violate('closed', 'inspect went through after close()');
      return String(evicted);
    } catch (error) {
      if (!client.closing && codeOf(error) !== 'HOLDFAST_ENGINE') this.#violate('error', `evict: ${String(error)}`);
      return codeOf(error);
    } finally {
      this.#promised.delete(call);
    }
  }

  /** What a user looks at does not count among the looks of the core. */
  async #lookedAt<T>({ looks }: Client, name: string, look: () => Promise<T>): Promise<T> {
    looks.set(name, (looks.get(name) ?? 0) - 1);
    try {
      return await look();
    } finally {
      looks.set(name, (looks.get(name) ?? 0) + 1);
    }
  }

  /** Waits for running functions until the drain ends, but not for those that it is called inside of. */
  async #close({ drain }: { do: 'close'; drain?: number }, { client, fns }: Place): Promise<string> {
    const at = now(client);
    const endsAt = Math.min(at + (drain ?? client.ttlMs), client.closing?.endsAt ?? Infinity);
    client.closing = { at: client.closing?.at ?? at, endsAt };
    this.#reference.closes(client);
    const dueAt = Math.max(at, endsAt) + client.ttlMs + LATE_MS;
    const call = this.#promise('close()', client, dueAt);
    try {
      await client.locks.close(drain === undefined ? undefined : { drain });
      // What is called in the very moment in which a function around it ends may find that either way.
      if (client.working === 0 && fns.every(({ endedAt }) => endedAt !== at)) client.closed = true;
      return 'done';
    } catch (error) {
      this.#violate('error', `close() threw ${String(error)}`);
      return codeOf(error);
    } finally {
      this.#promised.delete(call);
    }
  }

  // --- asking, being inside, and being told -----------------------------------------------------------------------

  #ask(
    place: Place,
    what: string,
    shares: Share[],
    options: Options,
    how: { waits?: boolean; reentrant?: boolean } = {},
  ): Asked[] {
    const { waits = true, reentrant = true } = how;
    const within = options.within === undefined ? undefined : this.#slots.get(options.within);
    const group = {};
    return shares.map((share) =>
      this.#reference.ask({ ...place, what, share, options, within, waits, reentrant, group }),
    );
  }

  #enter(asked: readonly Asked[], how: Fn['how'], leases: readonly [string, Lease][]): Fn {
    const fn: Fn = { client: asked[0]!.client, how, leases: [], ended: false };
    for (const one of asked) this.#answered(one);
    for (const [index, [slot, lease]] of leases.entries()) {
      const held = this.#reference.granted(asked[index]!, slot, lease, fn);
      fn.leases.push(held);
      this.#slots.set(slot, held);
    }
    return fn;
  }

  async #inside(fn: Fn, body: Steps, place: Place): Promise<void> {
    fn.client.working += 1;
    try {
      await this.play(body, { ...place, fns: [fn, ...place.fns] });
    } catch (error) {
      fn.threw = true;
      throw error;
    } finally {
      fn.client.working -= 1;
      fn.ended = true;
      fn.endedAt = now(fn.client);
      for (const held of fn.leases) held.over ??= 'ended';
    }
  }

  /** Follows an acquire to its answer. */
  async #granted<T>(asked: readonly Asked[], answer: Promise<T>): Promise<T | string> {
    const call = this.#promise(asked[0]!.what, asked[0]!.client, dueAt(asked), graceMs(asked));
    try {
      return await answer;
    } catch (error) {
      return this.#refused(asked, error);
    } finally {
      this.#promised.delete(call);
      for (const one of asked) this.#answered(one);
    }
  }

  /** Follows a run to its end: the answer to its acquire, then what its function ends with. */
  async #settle(
    asked: readonly Asked[],
    call: Promised,
    fn: () => Fn | undefined,
    run: Promise<unknown>,
  ): Promise<string> {
    const granting: Promised = {
      ...call,
      what: `the grant of ${asked[0]!.what}`,
      dueAt: dueAt(asked),
      graceMs: graceMs(asked),
    };
    this.#granting.set(asked[0]!, granting);
    this.#promised.add(granting);
    try {
      const value = await run;
      if (fn()?.threw) this.#violate('error', `${asked[0]!.what} has swallowed what its function threw`);
      return typeof value === 'string' ? value : 'granted';
    } catch (error) {
      if (error === THROWN) return 'thrown';
      if (!fn()) return this.#refused(asked, error);
      if (fn()!.threw) this.#violate('error', `${asked[0]!.what} threw ${String(error)}, not what its function threw`);
      // It was inside: only a loss, or what the function threw, may end it.
      // A leader that was lost campaigns again, and that may fail.
      if (codeOf(error) !== 'HOLDFAST_LOST' && fn()!.how !== 'lead') {
        this.#violate('error', `${asked[0]!.what} rejected with ${String((error as Error).stack ?? error)}`);
      }
      return codeOf(error);
    } finally {
      this.#promised.delete(call);
      for (const one of asked) this.#answered(one);
      if (fn()) this.#reference.runSettled(fn()!);
    }
  }

  readonly #granting = new Map<Asked, Promised>();

  #answered(asked: Asked): void {
    asked.pending = false;
    this.#reference.asked.delete(asked);
    const granting = this.#granting.get(asked);
    if (granting) this.#promised.delete(granting);
    this.#granting.delete(asked);
  }

  /** Whether this error may be the answer to this call. */
  #refused(asked: readonly Asked[], error: unknown): string {
    const [first] = asked as [Asked];
    const { client, options, within, what } = first;
    const code = codeOf(error);
    const foreign = within && (within.asked.client !== client || within.share.key !== first.share.key);
    const wrong = ((): string | undefined => {
      if (error === ABORTED) return options.abortAfter === undefined ? 'it has no signal' : undefined;
      if (foreign && code !== 'HOLDFAST_CONFIG' && !client.closing) return 'within is of another lock';
      switch (code) {
        case 'HOLDFAST_TIMEOUT':
          return first.waits && options.timeout !== undefined ? undefined : 'it has no timeout';
        case 'HOLDFAST_ENGINE':
          // `once` asks the register, too, and all() for one lock after the other.
          return this.#wasAnswered(first) && !/^once|^all/.test(what) ? 'the engine has answered' : undefined;
        case 'HOLDFAST_LOST':
          return undefined;
        case 'HOLDFAST_DEADLOCK':
          // What all() has while it waits for more is not among what the reference knows.
          if (asked.length > 1 || this.#reference.gathers(client)) return undefined;
          return asked.some((one) => this.#reference.mayRefuse(one)) ? undefined : 'nothing would hang';
        case 'HOLDFAST_CONFIG':
          return foreign || client.limited ? undefined : 'nothing is wrong with it';
        case 'HOLDFAST_CLOSED':
          if (!client.closing) return 'it is not closed';
          return first.closed === 'drains' &&
            now(client) < client.closing.endsAt - ROUNDING_MS &&
            first.fns.some((fn) => !fn.ended)
            ? 'it is asked inside a running function'
            : undefined;
        default:
          return 'it is none of ours';
      }
    })();
    if (wrong) this.#violate('error', `${what} rejected, and ${wrong}: ${String((error as Error).stack ?? error)}`);
    return code;
  }

  /** Where nothing is lost, late or stopped, an answer since the call began means that the lock was busy, not out of reach. */
  #wasAnswered({ client, since }: Asked): boolean {
    return this.#world.calm && client.answeredAt > since;
  }

  #options({ timeout, maxHold, permits, abortAfter, within }: Options, { client }: Place): AcquireOptions {
    const outer = within === undefined ? undefined : this.#slots.get(within);
    let signal: AbortSignal | undefined;
    if (abortAfter !== undefined) {
      const abort = new AbortController();
      signal = abort.signal;
      if (abortAfter === 0) abort.abort(ABORTED);
      else client.process.clock.timer(abortAfter, () => abort.abort(ABORTED));
    }
    return {
      ...(timeout !== undefined && { timeout }),
      ...(maxHold !== undefined && { maxHold }),
      ...(permits !== undefined && { permits }),
      ...(signal && { signal }),
      ...(outer && { within: outer.lease }),
    };
  }

  #with(slot: string, work: (held: Held) => Promise<string> | string): Promise<string> | string {
    const held = this.#slots.get(slot);
    return held ? work(held) : 'nothing';
  }

  #promise(what: string, client: Client, dueAt?: number, graceMs = client.ttlMs / 3 + LATE_MS): Promised {
    const promised = { what, client, since: now(client), dueAt, graceMs };
    this.#promised.add(promised);
    return promised;
  }
}

/** Timeouts keep time; one try may take the engine's own deadline, for each lock that is asked for. */
function dueAt(asked: readonly Asked[]): number | undefined {
  const [{ client, options, since, waits, reentrant }] = asked as [Asked];
  // `once` asks the register, too.
  if (waits ? options.timeout === undefined : !reentrant) return undefined;
  if (waits && options.timeout! > 0) return since + options.timeout! + LATE_MS;
  return since + (asked.length * client.ttlMs) / 3 + LATE_MS;
}

function graceMs([asked]: readonly Asked[]): number {
  const { client, options, waits } = asked!;
  return waits && options.timeout ? LATE_MS : client.ttlMs / 3 + LATE_MS;
}

function rootOf(held: Held): Held {
  let root = held;
  while (root.outer) root = root.outer;
  return root;
}

function lockOf({ locks }: Client, ref: LockRef): Lock {
  const [kind, name] = ref.split(' ') as [string, string];
  if (kind === 'mutex') return locks.mutex(name);
  if (kind === 'semaphore') return locks.semaphore(name, PERMITS);
  return kind === 'read' ? locks.rwLock(name).read : locks.rwLock(name).write;
}

function codeOf(error: unknown): string {
  return error instanceof Error ? ((error as HoldfastError).code ?? error.message) : String(error);
}

function isInside(inner: Held, outer: Held): boolean {
  for (let at = inner.outer; at; at = at.outer) if (at === outer) return true;
  return false;
}
