/** A session in one shard: each call is one step of the script. */
import type { Clock } from '../../../core/clock.js';
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
} from '../../../core/engine.js';
import { Awaited } from '../../../kit/awaited.js';
import { lineId, lineRef } from '../../../kit/line-id.js';
import { chunks } from '../chunks.js';
import { GUARD_REMEDY } from '../epoch-guard.js';
import type { ChannelListener, Subscription } from '../client/port.js';
import type { Shard } from './batch.js';

/** The answer to a try that was refused before all of the dead were out of the way. */
const AGAIN = 'a';

/** The answer to an open where the server does not let us see its epoch. */
const UNSEEN = 'x';

export interface RedisSessionOptions {
  readonly shard: Shard;
  readonly clock: Clock;
  readonly options: OpenOptions;
  readonly listener: SessionListener;
  /** The subscriber is to prove that it lives. */
  checkSubscriber(): void;
  forget(): void;
}

export class RedisSession implements Session, ChannelListener {
  readonly ttlMs: number;
  readonly #id: string;
  readonly #setup: RedisSessionOptions;
  readonly #awaited: Awaited;
  #subscription: Subscription | undefined;

  constructor(setup: RedisSessionOptions) {
    this.#setup = setup;
    this.#awaited = new Awaited(setup.listener, () => setup.clock.id());
    this.#id = setup.options.id;
    this.ttlMs = setup.options.ttlMs;
  }

  get waits(): boolean {
    return this.#awaited.size > 0;
  }

  /** @returns whether the server lets us see its epoch. */
  async open(inbox: string, subscription: Subscription): Promise<boolean> {
    this.#subscription = subscription;
    const answer = String(await this.#step('open', this.#id, inbox, subscription.kind, this.ttlMs));
    this.#heardGuard(answer);
    return answer !== UNSEEN;
  }

  async enter({ id, line, serial, weight, capacity, wait, note }: Claim): Promise<Place> {
    const nonce = this.#awaited.add(id);
    const words = [id, this.#id, lineId(line), serial, weight, capacity, wait ? 1 : 0, note, nonce] as const;
    let answer = AGAIN;
    while (answer === AGAIN) answer = String(await this.#step('enter', ...words));
    const place = placeOf(answer);
    if (place.state !== 'waiting') this.#awaited.answered(id, nonce);
    if (place.state === 'waiting' || place.state === 'refused') this.#heardGuard(answer.slice(1));
    return place;
  }

  async leave({ id, line }: ClaimRef): Promise<boolean> {
    this.#awaited.delete(id);
    return Number(await this.#step('leave', id, this.#id, lineId(line))) === 1;
  }

  async reweigh({ id, weight }: Claim): Promise<void> {
    await this.#step('reweigh', id, this.#id, weight);
  }

  async beat({ count, held, checksum, unsettled }: Roster): Promise<Pulse> {
    this.#setup.checkSubscriber();
    const answer = await this.#step('beat', this.#id, count, held, checksum, unsettled.join(' '));
    if (!Array.isArray(answer)) return { alive: false };
    const [guard = '', heard, ...words] = answer.map(String);
    this.#heardGuard(guard);
    this.#subscription?.confirmed(heard !== '0');
    const end = words.indexOf('');
    for (const [id = '', reason = ''] of chunks(end === -1 ? words : words.slice(0, end), 2))
      this.#awaited.evicted(id, reason);
    if (end === -1) return { alive: true };
    return { alive: true, index: chunks(words.slice(end + 1), 3).map(indexed) };
  }

  async close(): Promise<void> {
    this.#awaited.clear();
    this.#setup.forget();
    try {
      // Many claims are buried in several steps.
      while (Number(await this.#step('reap', this.#id, 1)) === 1);
    } finally {
      await this.#subscription?.close();
    }
  }

  // --- what the server tells us ---------------------------------------------------------------------------------

  /** Whoever may publish on the server can write here. */
  message(text: string): void {
    this.#awaited.heard(text);
  }

  resumed(): void {
    for (const id of this.#awaited) {
      this.#step('look', id, this.#id).then(
        (answer) => {
          const place = placeOf(String(answer));
          if (place.state === 'held') this.#awaited.granted(id, place.token);
        },
        () => {
          // The next beat finds out.
        },
      );
    }
  }

  #heardGuard(word: string): void {
    const [endsInMs, ageMs] = word.split(':').map(Number);
    if (endsInMs && ageMs !== undefined) this.#setup.listener.guarded?.({ endsInMs, ageMs, remedy: GUARD_REMEDY });
  }

  #step(...words: readonly (string | number)[]): Promise<unknown> {
    return this.#setup.shard.step(words.map(String));
  }
}

function placeOf(answer: string): Place {
  const rest = answer.slice(1);
  if (answer.startsWith('h')) return { state: 'held', token: BigInt(rest) };
  if (answer.startsWith('w')) return { state: 'waiting', ...(rest !== '' && { guarded: true }) };
  if (answer.startsWith('r')) return { state: 'refused', ...(rest !== '' && { guarded: true }) };
  if (answer.startsWith('m')) return { state: 'mismatch', capacity: Number(rest) };
  return { state: 'gone' };
}

function indexed([id = '', line = '', place = '']: readonly string[]): IndexedClaim {
  const at = placeOf(place);
  return at.state === 'held'
    ? { id, line: lineRef(line), state: 'held', token: at.token }
    : { id, line: lineRef(line), state: 'waiting', token: undefined };
}
