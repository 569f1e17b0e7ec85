/** A session of the `queue` strategy: each call is one of the functions in protocol.ts. */
import type { Clock } from '../../core/clock.js';
import type {
  Claim,
  ClaimRef,
  IndexedClaim,
  OpenOptions,
  Place,
  Pulse,
  Roster,
  Session,
  SessionListener,
} from '../../core/engine.js';
import { Awaited } from '../../kit/awaited.js';
import { foreignJson } from '../../kit/foreign-json.js';
import { lineId, lineRef } from '../../kit/line-id.js';
import { Batches } from './batch.js';

/** What a session needs of its engine. */
export interface QueueServices {
  /** Calls a function and returns its answer. */
  call(routine: string, ...args: readonly unknown[]): Promise<string | null>;
  /** The same, over the connection that listens. */
  callAside(routine: string, ...args: readonly unknown[]): Promise<string | null>;
  readonly namespace: string;
  /** One of ours waits; in so many milliseconds somebody before it may be dead (-1: nobody). */
  waits(lookMs: number): void;
  /** After each beat. */
  beaten(someoneDied: boolean): void;
  forget(session: QueueSession): void;
}

interface BeatAnswer {
  readonly dead: boolean;
  readonly evicted: [id: string, reason: string][] | null;
  readonly index: [id: string, line: string, held: boolean, token: string][] | null;
}

export class QueueSession implements Session {
  readonly ttlMs: number;
  readonly #id: string;
  readonly #queue: QueueServices;
  readonly #steps: Batches;
  readonly #awaited: Awaited;
  /** Under way: the core asks again when an answer is late, and a busy server is not to be asked twice. */
  readonly #entering = new Map<string, Promise<Place>>();

  constructor(queue: QueueServices, { id, ttlMs }: OpenOptions, listener: SessionListener, clock: Clock) {
    this.#queue = queue;
    this.#id = id;
    this.ttlMs = ttlMs;
    this.#awaited = new Awaited(listener, () => clock.id());
    this.#steps = new Batches({
      one: ([routine, claim, ...rest]) => queue.call(routine, id, claim, queue.namespace, ...rest),
      many: async (steps) =>
        JSON.parse((await queue.call('steps', id, queue.namespace, JSON.stringify(steps)))!) as (string | null)[],
    });
  }

  get hasWaiting(): boolean {
    return this.#awaited.size > 0;
  }

  async open(inbox: string): Promise<void> {
    await this.#queue.call('open', this.#id, this.#queue.namespace, inbox, Math.ceil(this.ttlMs));
  }

  enter(claim: Claim): Promise<Place> {
    const under = this.#entering.get(claim.id);
    if (under) return under;
    const entering = this.#enter(claim).finally(() => this.#entering.delete(claim.id));
    this.#entering.set(claim.id, entering);
    return entering;
  }

  async #enter({ id, line, serial, weight, capacity, wait, note }: Claim): Promise<Place> {
    const nonce = this.#awaited.add(id);
    const words = [id, lineId(line), serial, weight, capacity, wait, note, nonce] as const;
    const answer = (await this.#steps.ask('enter', ...words)) ?? 'g';
    const place = placeOf(answer);
    // A message may have overtaken this answer: then it is not waiting any more.
    if (place.state !== 'waiting') this.#awaited.answered(id, nonce);
    else if (this.#awaited.has(id)) this.#queue.waits(Number(answer.slice(1)));
    return place;
  }

  async leave({ id, line }: ClaimRef): Promise<boolean> {
    this.#awaited.delete(id);
    return (await this.#steps.ask('leave', id, lineId(line))) === 't';
  }

  async reweigh({ id, line, weight }: Claim): Promise<void> {
    await this.#queue.call('reweigh', this.#id, id, this.#queue.namespace, lineId(line), weight);
  }

  async beat({ count, held, checksum, unsettled }: Roster): Promise<Pulse> {
    const answer = await this.#queue.callAside('beat', this.#id, count, held, checksum, unsettled);
    if (answer === null) return { alive: false };
    const { dead, evicted, index } = JSON.parse(answer) as BeatAnswer;
    this.#queue.beaten(dead);
    for (const [id, reason] of evicted ?? []) this.#evicted(id, reason);
    return index ? { alive: true, index: index.map(indexed) } : { alive: true };
  }

  async close(): Promise<void> {
    this.#awaited.clear();
    this.#queue.forget(this);
    // Many claims are buried in several steps.
    while ((await this.#queue.call('shut', this.#id, this.#queue.namespace)) === 't');
  }

  // --- what the server tells us ---------------------------------------------------------------------------------

  /** Whoever may connect can write here. */
  message(text: string): void {
    this.#awaited.heard(text);
  }

  /** Asks how those stand that wait: messages were missed, or do not come at all. */
  async look(): Promise<void> {
    if (!this.hasWaiting) return;
    const answer = await this.#queue.call('look', this.#id, [...this.#awaited]);
    const found = JSON.parse(answer ?? '[]') as [id: string, token: string | null, reason: string | null][];
    for (const [id, token, reason] of found) {
      if (token !== null) this.#awaited.granted(id, BigInt(token));
      if (reason !== null) this.#evicted(id, reason);
    }
  }

  #evicted(id: string, reason: string): void {
    const text = foreignJson(reason);
    this.#awaited.evicted(id, typeof text === 'string' ? text : reason);
  }
}

function placeOf(answer: string): Place {
  const rest = answer.slice(1);
  if (answer.startsWith('h')) return { state: 'held', token: BigInt(rest) };
  if (answer.startsWith('w')) return { state: 'waiting' };
  if (answer.startsWith('r')) return { state: 'refused' };
  if (answer.startsWith('m')) return { state: 'mismatch', capacity: Number(rest) };
  return { state: 'gone' };
}

function indexed([id, line, held, token]: [string, string, boolean, string]): IndexedClaim {
  return { id, line: lineRef(line), state: held ? 'held' : 'waiting', token: BigInt(token) };
}
