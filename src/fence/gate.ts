/**
 * A fence in the memory of the process that keeps the resource. A judgement alone would not do: a request that has passed
 * it may still be at work when a newer one comes. So who is newer first closes the fence to all who are older, and then
 * waits until those who were let in before have gone.
 *
 *     enter(5) ── at work ──────────────── leave
 *            enter(6): raises to 6, waits ──────── at work ── leave
 *                enter(5): stale, refused
 *
 * Requests with the same token are one holder's and run together, and so do readers. It follows that those inside are either
 * readers or writers with one token, and so are those who wait: each company can be judged by any one of its members.
 *
 * A place is remembered once a request may have worked there. What was refused leaves nothing behind, else whoever can make up
 * names could fill the memory.
 */
import type { Fence } from '../core/engine.js';
import { EngineError, quote, StaleTokenError } from '../core/errors.js';
import { isStale, newest } from '../core/fence.js';
import { clearTimeout, performance, setTimeout } from '../core/real-time.js';

export interface GateOptions {
  /** How many places are remembered. */
  readonly most: number;
  /** A place that nobody used for so long is forgotten, and lets older tokens pass. Infinity: never. */
  readonly forgetAfterMs: number;
  /** Whether a store remembers what was shown: then the oldest places make room for new ones. */
  readonly stored: boolean;
}

export interface Entering {
  readonly withinMs: number;
  /** Called once, when somebody newer waits for this one to leave. */
  readonly overtaken?: (() => void) | undefined;
}

/** @param worked whether the request may have worked: then the place is remembered. Called again it does nothing. */
export type Leave = (worked: boolean) => void;

interface GatePlace {
  maxRead: bigint;
  maxWrite: bigint;
  /** Somebody may have worked here. */
  isKept: boolean;
  /** When the last one left. */
  idleSince: number;
  readonly inside: Set<Fence>;
  readonly waiting: Set<GateWaiter>;
  /** What those inside want to hear when somebody newer waits for them. */
  readonly overtaken: Map<Fence, () => void>;
}

interface GateWaiter extends Fence {
  readonly admit: () => void;
  readonly refuse: (error: Error) => void;
}

export class Gate {
  /** Where somebody is inside or waits. */
  readonly #busy = new Map<string, GatePlace>();
  /** Remembered, though nobody is there; who was used last comes last. */
  readonly #idle = new Map<string, GatePlace>();
  readonly #options: GateOptions;
  #hasWarned = false;

  constructor(options: GateOptions) {
    this.#options = options;
  }

  /** How many places are remembered, or in use. */
  get size(): number {
    return this.#busy.size + this.#idle.size;
  }

  /** Resolves to what lets the next one in. Throws a StaleTokenError; an EngineError if an older one does not go in time. */
  async enter(resource: string, fence: Fence, { withinMs, overtaken }: Entering): Promise<Leave> {
    const place = this.#place(resource);
    // An object of its own: the same token may be inside several times.
    const visit: Fence = { ...fence };
    try {
      raise(place, resource, fence);
      if (fits(place.inside, fence)) place.inside.add(visit);
      else await turn(place, resource, visit, withinMs);
    } catch (error) {
      this.#tidy(resource, place);
      throw error;
    }
    if (overtaken) place.overtaken.set(visit, overtaken);
    if (place.waiting.size > 0) tellOvertaken(place);
    return (worked) => {
      if (!place.inside.delete(visit)) return;
      place.overtaken.delete(visit);
      place.isKept ||= worked;
      admit(place);
      this.#tidy(resource, place);
    };
  }

  #place(resource: string): GatePlace {
    const known = this.#busy.get(resource) ?? this.#idle.get(resource);
    if (!known) this.#makeRoom();
    const place = known ?? {
      maxRead: 0n,
      maxWrite: 0n,
      isKept: false,
      idleSince: 0,
      inside: new Set(),
      waiting: new Set(),
      overtaken: new Map(),
    };
    this.#idle.delete(resource);
    this.#busy.set(resource, place);
    return place;
  }

  /** Nobody there any more: remembered if somebody worked. */
  #tidy(resource: string, place: GatePlace): void {
    if (place.inside.size + place.waiting.size > 0 || this.#busy.get(resource) !== place) return;
    this.#busy.delete(resource);
    if (!place.isKept) return;
    place.idleSince = performance.now();
    this.#idle.set(resource, place);
  }

  #makeRoom(): void {
    const { most, forgetAfterMs, stored } = this.#options;
    const now = performance.now();
    for (const [resource, { idleSince }] of this.#idle) {
      const isOld = now - idleSince >= forgetAfterMs;
      if (!isOld && !(stored && this.size >= most)) break;
      this.#idle.delete(resource);
    }
    if (this.size < most) return;
    this.#warn(most);
    throw new EngineError(`There are fences for ${most} resources in memory; no more fit (mostResources).`);
  }

  #warn(most: number): void {
    if (this.#hasWarned) return;
    this.#hasWarned = true;
    process.emitWarning(
      `An HTTP fence remembers ${most} resources and refuses requests for any other with 503. Allow more (mostResources), ` +
        'check that resource() gives only names that exist, or have old ones forgotten (forgetAfter).',
      'HoldfastWarning',
    );
  }
}

/** Of a company one speaks for all. */
function fits(company: ReadonlySet<Fence>, fence: Fence): boolean {
  const [one] = company;
  return !one || one.token === fence.token || (one.mode === 'read' && fence.mode === 'read');
}

function raise(place: GatePlace, resource: string, fence: Fence): void {
  const { maxRead, maxWrite } = place;
  if (isStale(fence, maxRead, maxWrite)) throw stale(place, resource, fence);
  if (fence.mode === 'write') place.maxWrite = fence.token;
  else if (fence.token > maxRead) place.maxRead = fence.token;
  // Who does not stand beside the newest was overtaken by it, and is told at once.
  if (fits(place.waiting, fence)) return;
  for (const waiter of place.waiting) waiter.refuse(stale(place, resource, waiter));
}

function stale({ maxRead, maxWrite }: GatePlace, resource: string, { token }: Fence): StaleTokenError {
  return new StaleTokenError(resource, token, newest(maxRead, maxWrite));
}

/** Whoever leaves lets them in, all at once: nobody who waits looks for itself. */
function admit({ inside, waiting }: GatePlace): void {
  const [next] = waiting;
  if (!next || !fits(inside, next)) return;
  for (const waiter of waiting) waiter.admit();
}

/** Resolves when the visit is inside. */
function turn(place: GatePlace, resource: string, visit: Fence, withinMs: number): Promise<void> {
  return new Promise((resolve, reject) => {
    const waiter: GateWaiter = {
      ...visit,
      admit: () => {
        stop();
        place.inside.add(visit);
        resolve();
      },
      refuse: (error) => {
        stop();
        reject(error);
      },
    };
    const timer = setTimeout(() => waiter.refuse(tooLong(resource, withinMs)), withinMs);
    function stop(): void {
      clearTimeout(timer);
      place.waiting.delete(waiter);
    }
    place.waiting.add(waiter);
    tellOvertaken(place);
  });
}

function tellOvertaken({ overtaken }: GatePlace): void {
  const told = [...overtaken.values()];
  overtaken.clear();
  for (const tell of told) tell();
}

function tooLong(resource: string, withinMs: number): EngineError {
  return new EngineError(
    `A request with an older token has been at work on ${quote(resource)} for more than ${withinMs} ms. Try again.`,
  );
}
