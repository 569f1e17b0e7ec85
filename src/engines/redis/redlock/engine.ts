/** Opens sessions on nodes of which more than half answer. */
import type { Clock } from '../../../core/clock.js';
import type { Engine, EngineSetup, OpenOptions, Session, SessionListener } from '../../../core/engine.js';
import type { KeyOf } from '../../../kit/encoded-name.js';
import { SlotSession } from '../../../kit/slot-session.js';
import { explain, isHopeless, type RedisPort } from '../client/port.js';
import { keysUnder } from '../slots/keys.js';
import { SlotWatches } from '../slots/watches.js';
import { warnUnguarded } from '../unguarded.js';
import { NodeTime } from './node-time.js';
import { PROBE } from './protocol.js';
import { Quorum } from './quorum.js';
import { RedlockStore } from './store.js';

/** How long a node may take, where a tenth of the ttl is less. */
const LEAST_PATIENCE_MS = 100;

/** How long a node may take to show that it is there. */
const PING_MS = 1_000;

export class RedlockEngine implements Engine {
  readonly #nodes: readonly RedisPort[];
  readonly #watches: readonly SlotWatches[];
  readonly #clock: Clock;
  readonly #keyOf: KeyOf;
  readonly #leastGuardMs: number | undefined;
  readonly #time: NodeTime;

  constructor(
    nodes: readonly RedisPort[],
    keyOf: KeyOf | undefined,
    leastGuardMs: number | undefined,
    setup: EngineSetup,
  ) {
    this.#nodes = nodes;
    this.#watches = nodes.map((node) => new SlotWatches(node));
    this.#clock = setup.clock;
    this.#keyOf = keyOf ?? keysUnder(setup.namespace);
    this.#leastGuardMs = leastGuardMs;
    this.#time = new NodeTime(setup.clock);
  }

  async open(options: OpenOptions, listener: SessionListener): Promise<Session> {
    const quorum = new Quorum(this.#nodes, this.#clock, Math.max(LEAST_PATIENCE_MS, options.ttlMs / 10));
    const answers = await this.#probe(quorum);
    if (this.#leastGuardMs !== undefined && answers.some(({ guarded }) => guarded === 0)) warnUnguarded();
    this.#time.heard(
      answers.map(({ aheadUs }) => aheadUs),
      options.ttlMs,
    );
    const store = new RedlockStore({
      quorum,
      watches: this.#watches,
      time: this.#time,
      keyOf: this.#keyOf,
      leastGuardMs: this.#leastGuardMs,
      ttlMs: options.ttlMs,
    });
    return new SlotSession({ options, listener, clock: this.#clock, store: () => store });
  }

  async #probe(quorum: Quorum): Promise<readonly { readonly guarded: number; readonly aheadUs: number }[]> {
    const { answers, silent, lastError } = await quorum.ask(
      async (node) => {
        const [guarded, nodeUs] = ((await node.run(PROBE, [], [])) as unknown[]).map(Number);
        return { guarded: guarded!, aheadUs: this.#time.ahead(nodeUs!) };
      },
      (tally) => tally.answers.length >= quorum.size,
    );
    if (answers.length >= quorum.size) return answers;
    if (isHopeless(lastError)) explain(lastError);
    throw quorum.unreachable(silent, lastError);
  }

  async ping(): Promise<void> {
    await this.#probe(new Quorum(this.#nodes, this.#clock, PING_MS));
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await Promise.all(this.#nodes.map((node) => node.close()));
  }
}
