/**
 * A fence in the memory of the process that keeps the resource. A judgement alone would not do: a request that has passed
 * it may still be at work when a newer one comes. So who is newer first closes the fence to all who are older, and then
 * waits until those who were let in before have gone.
 *
 *     enter(5) ── at work ──────────────── leave
 *            enter(6): raises to 6, waits ──────── at work ── leave
 *                enter(5): stale, refused
 *
 * Requests with the same token are one holder's and run together, and so do readers.
 */
import type { Fence } from '../core/engine.js';
import { EngineError, quote, StaleTokenError } from '../core/errors.js';
import { isStale, newest } from '../core/fence.js';

interface Place {
  maxRead: bigint;
  maxWrite: bigint;
  readonly inside: Set<Fence>;
  /** Called when somebody has left or come. */
  readonly waiting: Set<() => void>;
}

export class Gate {
  readonly #places = new Map<string, Place>();
  readonly #most: number;

  /** @param most resources; a place is never forgotten, because the next older token would pass. */
  constructor(most: number) {
    this.#most = most;
  }

  /** Resolves to what lets the next one in. Throws a StaleTokenError; an EngineError if an older one does not go in time. */
  async enter(resource: string, fence: Fence, withinMs: number): Promise<() => void> {
    const place = this.#place(resource);
    raise(place, resource, fence);
    const end = performance.now() + withinMs;
    while ([...place.inside].some((other) => excludes(other, fence))) {
      const leftMs = end - performance.now();
      if (leftMs <= 0) throw tooLong(resource, withinMs);
      await change(place, leftMs);
      // Somebody newer may have come meanwhile.
      raise(place, resource, fence);
    }
    const visit = { ...fence };
    place.inside.add(visit);
    return () => {
      if (place.inside.delete(visit)) wake(place);
    };
  }

  #place(resource: string): Place {
    let place = this.#places.get(resource);
    if (place) return place;
    if (this.#places.size >= this.#most)
      throw new EngineError(`There are fences for ${this.#most} resources in memory; no more fit (mostResources).`);
    place = { maxRead: 0n, maxWrite: 0n, inside: new Set(), waiting: new Set() };
    this.#places.set(resource, place);
    return place;
  }
}

function raise(place: Place, resource: string, fence: Fence): void {
  const { maxRead, maxWrite } = place;
  if (isStale(fence, maxRead, maxWrite)) throw new StaleTokenError(resource, fence.token, newest(maxRead, maxWrite));
  if (fence.mode === 'write') place.maxWrite = fence.token;
  else if (fence.token > maxRead) place.maxRead = fence.token;
  // Those who wait with an older one are to be told at once.
  wake(place);
}

function excludes(a: Fence, b: Fence): boolean {
  return a.token !== b.token && (a.mode === 'write' || b.mode === 'write');
}

function wake({ waiting }: Place): void {
  const all = [...waiting];
  waiting.clear();
  for (const each of all) each();
}

function change({ waiting }: Place, withinMs: number): Promise<void> {
  return new Promise((resolve) => {
    const timer = setTimeout(done, withinMs);
    function done(): void {
      clearTimeout(timer);
      waiting.delete(done);
      resolve();
    }
    waiting.add(done);
  });
}

function tooLong(resource: string, withinMs: number): EngineError {
  return new EngineError(
    `A request with an older token has been at work on ${quote(resource)} for more than ${withinMs} ms. Try again.`,
  );
}
