/**
 * Redlock: one lock over several independent Redis servers, held by whoever has it on more than half of them, with a
 * fencing token. What a node is asked is in protocol.ts.
 *
 *     take ──▶ every node: this claim, this token? ──▶ more than half say yes ──▶ held; the others' answers don't matter
 *                        └▶ too few ──▶ freed everywhere, asked again after a random pause
 *
 * A beat renews on all nodes; only renewals count, and what was set anew on a node that had forgotten it only repairs it.
 */
import type { Clock } from '../../../core/clock.js';
import type {
  Claim,
  ClaimRef,
  Engine,
  EngineSetup,
  EngineSource,
  LineRef,
  OpenOptions,
  Session,
  SessionListener,
} from '../../../core/engine.js';
import { ConfigError, EngineError } from '../../../core/errors.js';
import { type HeldSlot, SlotSession, type SlotStore, type Taken, type Watch } from '../../../kit/slot-session.js';
import { parseEngineUrl, placeOf } from '../../../kit/url.js';
import { EXTEND, FREE, PROBE, VOTE } from './protocol.js';
import { clientFromUrl } from '../from-url.js';
import { IoredisPort } from '../client/ioredis.js';
import { portOf } from '../client/port-of.js';
import { isHopeless, explain, type RedisPort, warnUnguarded } from '../client/port.js';
import { type Poll, Quorum } from './quorum.js';
import { type KeyOf, keysUnder } from '../slots/keys.js';
import { split } from '../slots/store.js';
import { redlockTraits } from '../traits.js';
import { type RedisUrl, redisUrl } from '../url.js';
import { MISSED, Watches } from '../slots/watches.js';

export interface RedlockOptions {
  /** What the key of a lock is called. Default: the namespace, a colon and the name. */
  readonly key?: (name: string) => string;
  /**
   * A node that has just started may have lost locks, so it takes part in no new one for one ttl. Default: true. Switch it
   * off for tests and throw-away servers: on servers that have just been started the first lock waits.
   */
  readonly epochGuard?: boolean;
}

/**
 * One lock over several independent Redis servers, given by URLs or by clients of yours, which are never closed. An odd
 * number is best: three survive the loss of one, five the loss of two. All users of a name must have the same servers
 * and the same ttl.
 *
 * @example
 * const locks = new Holdfast(redlock(['redis://a:6379', 'redis://b:6379', 'redis://c:6379']));
 */
export function redlock(clientsOrUrls: readonly (string | object)[], options: RedlockOptions = {}): EngineSource {
  if (!Array.isArray(clientsOrUrls) || clientsOrUrls.length === 0)
    throw new ConfigError('redlock() takes a list of clients or URLs, of three servers or more.');
  if (new Set(clientsOrUrls).size < clientsOrUrls.length)
    throw new ConfigError('redlock() got the same server twice: it would have two votes.');
  const nodes = clientsOrUrls.map((node) => {
    if (typeof node === 'string') return redlockNode(redisUrl(parseEngineUrl(node)));
    if (portOf(node).cluster) throw new ConfigError('redlock() takes single servers, not a cluster.');
    return async () => portOf(node);
  });
  const [first] = clientsOrUrls;
  return { ...source(nodes, options), place: typeof first === 'string' ? placeOf(parseEngineUrl(first)) : first };
}

/** `redlock://user:password@host1:6379,host2,host3/0` */
export function redlockFromUrl(url: RedisUrl): EngineSource {
  return source(
    url.hosts.map((host) => redlockNode({ ...url, kind: 'single', hosts: [host] })),
    { epochGuard: url.epochGuard },
  );
}

function redlockNode(url: RedisUrl): () => Promise<RedisPort> {
  if (url.kind !== 'single') throw new ConfigError("redlock() takes single servers: 'redis://' or 'rediss://'.");
  return async () => new IoredisPort(await clientFromUrl(url), true);
}

function source(nodes: readonly (() => Promise<RedisPort>)[], options: RedlockOptions): EngineSource {
  return {
    traits: redlockTraits,
    connect: async (setup) => new RedlockEngine(await Promise.all(nodes.map((connect) => connect())), options, setup),
  };
}

class RedlockEngine implements Engine {
  readonly #nodes: readonly RedisPort[];
  readonly #watches: readonly Watches[];
  readonly #clock: Clock;
  readonly #keyOf: KeyOf;
  readonly #guard: boolean;
  readonly #time: NodeTime;

  constructor(nodes: readonly RedisPort[], { key, epochGuard = true }: RedlockOptions, setup: EngineSetup) {
    this.#nodes = nodes;
    this.#watches = nodes.map((node) => new Watches(node));
    this.#clock = setup.clock;
    this.#keyOf = key ?? keysUnder(setup.namespace);
    this.#guard = epochGuard;
    this.#time = new NodeTime(setup.clock);
  }

  async open(options: OpenOptions, listener: SessionListener): Promise<Session> {
    const quorum = new Quorum(this.#nodes, this.#clock, Math.max(LEAST_PATIENCE_MS, options.ttlMs / 10));
    const poll = await quorum.ask(
      async (node) => {
        const [guarded, nodeUs] = ((await node.run(PROBE, [], [])) as unknown[]).map(Number);
        return { guarded, aheadUs: this.#time.ahead(nodeUs!) };
      },
      ({ answers }) => answers.length >= quorum.size,
    );
    if (poll.answers.length < quorum.size) {
      if (isHopeless(poll.lastError)) explain(poll.lastError);
      throw quorum.unreachable(poll.silent, poll.lastError);
    }
    if (this.#guard && poll.answers.some(({ guarded }) => guarded === 0)) warnUnguarded();
    this.#time.heard(
      poll.answers.map(({ aheadUs }) => aheadUs),
      options.ttlMs,
    );
    const store = new RedlockStore({
      quorum,
      watches: this.#watches,
      time: this.#time,
      keyOf: this.#keyOf,
      guard: this.#guard,
      ttlMs: options.ttlMs,
    });
    return new SlotSession({ options, listener, clock: this.#clock, store: () => store });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await Promise.all(this.#nodes.map((node) => node.close()));
  }
}

interface RedlockSetup {
  readonly quorum: Quorum;
  /** One for each node. */
  readonly watches: readonly Watches[];
  readonly time: NodeTime;
  readonly keyOf: KeyOf;
  readonly guard: boolean;
  readonly ttlMs: number;
}

const LEAST_PATIENCE_MS = 100;

/** A first proposal, one that has learned the nodes' clock, one that has learned their highest token. */
const ROUNDS = 3;

const KEYS_PER_CALL = 100;

class RedlockStore implements SlotStore {
  readonly pace = { firstMs: 10, mostMs: 200 };
  readonly #setup: RedlockSetup;
  readonly #quorum: Quorum;
  /** So many nodes decide against us. */
  readonly #veto: number;
  /** Tries under way, by claim. */
  readonly #taking = new Map<string, Promise<Taken | undefined>>();

  constructor(setup: RedlockSetup) {
    this.#setup = setup;
    this.#quorum = setup.quorum;
    this.#veto = setup.quorum.nodes.length - setup.quorum.size + 1;
  }

  /** One try after the other: what a try that fails gives back may be what another of the same claim has just got. */
  async take(claim: Claim): Promise<Taken> {
    const before = this.#taking.get(claim.id);
    const taking = before
      ? before.then((taken) => (taken?.token === undefined ? this.#take(claim) : taken))
      : this.#take(claim);
    const settled = taking.catch(() => undefined);
    this.#taking.set(claim.id, settled);
    try {
      return await taking;
    } finally {
      if (this.#taking.get(claim.id) === settled) this.#taking.delete(claim.id);
    }
  }

  async #take(claim: Claim): Promise<Taken> {
    const { time, ttlMs } = this.#setup;
    let floor = 0;
    for (let round = 1; ; round += 1) {
      const token = time.propose(floor);
      const { answers: votes, silent, lastError } = await this.#vote(claim, token);
      const accepted = votes.filter(({ what }) => what === 'yes').length;
      if (accepted >= this.#quorum.size) return { token: BigInt(token) };
      time.heard(
        votes.map(({ aheadUs }) => aheadUs),
        ttlMs,
      );
      // Another token helps where nodes refused this one; not where others hold the lock, or too few answer.
      const unsuitable = votes.filter(({ what }) => what === 'low' || what === 'clock');
      if (unsuitable.length > 0 && silent < this.#veto && round < ROUNDS) {
        floor = Math.max(...unsuitable.map(({ number }) => number)) + 1;
        continue;
      }
      // Nobody waits for it: it takes nothing from a try that comes after.
      void this.#free(claim, `${token}`).catch(runsOut);
      if (silent >= this.#veto) throw this.#quorum.unreachable(silent, lastError);
      if (votes.filter(({ what }) => what === 'clock').length >= this.#veto) throw clocksDisagree();
      return { freeInMs: accepted > 0 ? 0 : this.#freeInMs(votes) };
    }
  }

  #vote({ id, line }: Claim, token: number): Promise<Poll<Vote>> {
    const { time, guard, ttlMs } = this.#setup;
    const keys = this.#keys(line);
    const words = [id, token, ttlMs, toleranceMs(ttlMs) * 1_000, rememberMs(ttlMs), guard ? 1 : 0].map(String);
    return this.#quorum.ask(
      async (node) => {
        const [what, number, nodeUs] = ((await node.run(VOTE, keys, words)) as unknown[]).map(String);
        return { what: what!, number: Number(number), aheadUs: time.ahead(Number(nodeUs)) };
      },
      ({ answers, open }) => {
        const accepted = answers.filter(({ what }) => what === 'yes').length;
        return accepted >= this.#quorum.size || accepted + open < this.#quorum.size;
      },
    );
  }

  /** When so many nodes are free that they are more than half, if nobody renews. */
  #freeInMs(votes: readonly Vote[]): number | undefined {
    const waits = votes.filter(({ what }) => what === 'busy' || what === 'young').map(({ number }) => number);
    // Taken without an end: -1.
    const ends = waits.map((ms) => (ms < 0 ? Number.POSITIVE_INFINITY : ms)).sort((one, other) => one - other);
    return ends.at(-this.#veto);
  }

  async keep(slots: readonly HeldSlot[]): Promise<readonly string[]> {
    const { ttlMs } = this.#setup;
    const batches = split(slots, KEYS_PER_CALL);
    // For each slot on how many nodes it was renewed, and on how many it was not ours any more.
    const renewed = slots.map(() => 0);
    const missing = slots.map(() => 0);
    const { silent, lastError } = await this.#quorum.ask(
      async (node) => {
        const answers = await Promise.all(
          batches.map((batch) => {
            const keys = batch.flatMap(({ line }) => this.#keys(line));
            const words = batch.flatMap(({ id, token }) => [id, `${token}`]);
            return node.run(EXTEND, keys, [`${ttlMs}`, `${rememberMs(ttlMs)}`, ...words]) as Promise<unknown[]>;
          }),
        );
        for (const [at, answer] of answers.flat().entries()) (Number(answer) === 1 ? renewed : missing)[at]! += 1;
      },
      () => renewed.every((count) => count >= this.#quorum.size),
    );
    const isLost = (at: number): boolean => missing[at]! >= this.#veto;
    if (renewed.some((count, at) => count < this.#quorum.size && !isLost(at)))
      throw this.#quorum.unreachable(silent, lastError);
    return slots.filter((_, at) => isLost(at)).map(({ id }) => id);
  }

  drop(claim: ClaimRef): Promise<boolean> {
    return this.#free(claim, '');
  }

  async #free({ id, line }: ClaimRef, highestToken: string): Promise<boolean> {
    const key = this.#setup.keyOf(line.name);
    const { answers, silent, lastError } = await this.#quorum.ask(
      async (node) => Number(await node.run(FREE, [key], [id, channelOf(key), highestToken])),
      (poll) => sum(poll.answers) >= this.#quorum.size || poll.answers.length - sum(poll.answers) >= this.#veto,
    );
    if (sum(answers) >= this.#quorum.size) return true;
    if (answers.length - sum(answers) >= this.#veto) return false;
    throw this.#quorum.unreachable(silent, lastError);
  }

  /** Woken when more than half of the nodes have said that one claim is gone: then the lock can be taken. */
  readonly watch = async (line: LineRef, freed: () => void): Promise<Watch> => {
    const { watches, keyOf } = this.#setup;
    const channel = channelOf(keyOf(line.name));
    const heardOf = new Map<string, number>();
    const heard = (claim: string): void => {
      const count = (heardOf.get(claim) ?? 0) + 1;
      heardOf.set(claim, count);
      if (claim !== MISSED && count !== this.#quorum.size) return;
      // Claims that were given up before they had a majority are heard of, too, and never get here.
      heardOf.clear();
      freed();
    };
    const opening = watches.map((node) => node.watch(channel, heard));
    await enough(opening, this.#quorum.size);
    return {
      close: async () => {
        for (const watch of await Promise.allSettled(opening))
          if (watch.status === 'fulfilled') await watch.value.close();
      },
    };
  };

  async close(): Promise<void> {}

  #keys({ name }: LineRef): string[] {
    const key = this.#setup.keyOf(name);
    return [key, `holdfast_ballot:${key}`];
  }
}

/** What one node says to a proposal; see protocol.ts. */
interface Vote {
  readonly what: string;
  readonly number: number;
  /** What its clock is ahead of ours (µs). */
  readonly aheadUs: number;
}

function sum(numbers: readonly number[]): number {
  return numbers.reduce((total, number) => total + number, 0);
}

function clocksDisagree(): EngineError {
  return new EngineError(
    "The clock of this machine and those of the nodes differ by more than a quarter of the ttl. If it stays so, the nodes' " +
      'clocks are believed after one ttl; until then no lock is granted here. Set the clocks.',
  );
}

/** Where we could not say that we gave it up it runs out. */
function runsOut(): void {}

const MOST_TOLERANCE_MS = 2_500;

/** How far a token may be from a node's clock. */
function toleranceMs(ttlMs: number): number {
  return Math.min(ttlMs / 4, MOST_TOLERANCE_MS);
}

/** Longer than a smaller token could still be close to the node's clock, whatever the ttl of the one who proposes it. */
function rememberMs(ttlMs: number): number {
  return Math.max(3 * ttlMs, 4 * MOST_TOLERANCE_MS);
}

function channelOf(key: string): string {
  return `holdfast_freed:${key}`;
}

/**
 * What time it is on the nodes (µs), reckoned on our monotonic clock: a jump of our wall clock does not matter.
 *
 * When the nodes' clocks jump, locks run out before their holders know. So we do not follow them at once: what we propose
 * is too far from their clocks, they refuse it, and after one ttl, when whoever held a lock by the old clocks has lost it
 * for certain, we believe them. Who has just come compares them with its own wall clock.
 */
class NodeTime {
  readonly #clock: Clock;
  #aheadUs: number;
  #disagreeSince: number | undefined;
  #last = 0;

  constructor(clock: Clock) {
    this.#clock = clock;
    this.#aheadUs = this.ahead(clock.wall() * 1_000);
  }

  ahead(nodeUs: number): number {
    return nodeUs - this.#clock.now() * 1_000;
  }

  /** What all nodes that answered are ahead. The one in the middle counts: a few wrong clocks do not lead us astray. */
  heard(aheadUs: readonly number[], ttlMs: number): void {
    const middle = aheadUs.toSorted((one, other) => one - other)[Math.floor(aheadUs.length / 2)];
    if (middle === undefined) return;
    const now = this.#clock.now();
    this.#disagreeSince ??= now;
    const agrees = Math.abs(middle - this.#aheadUs) <= toleranceMs(ttlMs) * 1_000;
    if (!agrees && now - this.#disagreeSince < ttlMs) return;
    this.#aheadUs = middle;
    this.#disagreeSince = undefined;
    // What we proposed by the wrong clock was never accepted.
    if (!agrees) this.#last = 0;
  }

  /** A token that was never proposed here before, close to the nodes' clocks. */
  propose(floor: number): number {
    this.#last = Math.max(Math.floor(this.#aheadUs + this.#clock.now() * 1_000), this.#last + 1, floor);
    return this.#last;
  }
}

/** Resolves when so many have; rejects when so many no longer can. */
function enough(promises: readonly Promise<unknown>[], count: number): Promise<void> {
  return new Promise((resolve, reject) => {
    let done = 0;
    let failed = 0;
    for (const promise of promises) {
      promise.then(
        () => {
          done += 1;
          if (done === count) resolve();
        },
        (error: unknown) => {
          failed += 1;
          if (promises.length - failed < count) reject(error);
        },
      );
    }
  });
}
