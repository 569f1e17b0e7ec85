/**
 * The queue, which is the default: lines, sessions and tokens in Redis itself. The protocol is one script, in protocol.ts;
 * the keys are named in keys.ts.
 *
 *     enter ─▶ script ─▶ held              one round trip
 *              script ─▶ waiting ┄┄ leave of another: script ─▶ PUBLISH to our inbox, with token and nonce ─▶ held
 *
 * A message is a hint, and a grant is believed if it has the nonce of its claim: see kit/message.ts. Who missed one finds its grant
 * when the subscription is back, or with the next beat.
 */
import type { Clock } from '../../../core/clock.js';
import type {
  Engine,
  EngineLine,
  EngineSetup,
  LineQuery,
  OpenOptions,
  Session,
  SessionListener,
} from '../../../core/engine.js';
import { listLines } from './listing.js';
import { explain, type RedisPort } from '../client/port.js';
import { RedisRegisters } from '../registers.js';
import { warnUnguarded } from '../unguarded.js';
import { RedisSession } from './session.js';
import { Shard } from './batch.js';
import { allRealms, realmOf, shardPrefix } from './keys.js';

export class QueueEngine implements Engine {
  readonly registers: RedisRegisters;
  readonly #port: RedisPort;
  readonly #clock: Clock;
  readonly #namespace: string;
  readonly #leastGuardMs: number | undefined;
  readonly #shards = new Map<string, { readonly shard: Shard; readonly sessions: Set<RedisSession> }>();

  constructor(port: RedisPort, leastGuardMs: number | undefined, { namespace, clock }: EngineSetup) {
    this.#port = port;
    this.#clock = clock;
    this.#namespace = namespace;
    this.#leastGuardMs = leastGuardMs;
    this.registers = new RedisRegisters(port, namespace);
  }

  async open(options: OpenOptions, listener: SessionListener): Promise<Session> {
    const { shard, sessions } = this.#shard(options.realm);
    const session: RedisSession = new RedisSession({
      shard,
      clock: this.#clock,
      options,
      listener,
      checkSubscriber: () => this.#port.checkSubscriber(),
      forget: () => sessions.delete(session),
    });
    // Another id than the session's: everybody can see which channels there are.
    const inbox = this.#clock.id();
    // Before the session exists, so that no message to it can get lost.
    const subscription = await this.#port.listen(shard.inboxes + inbox, session).catch(explain);
    try {
      if (!(await session.open(inbox, subscription))) warnUnguarded();
    } catch (error) {
      void subscription.close().catch(() => {});
      throw error;
    }
    sessions.add(session);
    return session;
  }

  async *inspect(query: LineQuery): AsyncIterable<EngineLine> {
    const { cluster } = this.#port;
    const realms = query.name === undefined ? allRealms(cluster) : [realmOf(query.name, cluster)];
    for (const realm of realms) {
      await this.#shard(realm).shard.step(['reap', '', '0']);
      yield* listLines(this.#port, this.#prefix(realm), query);
    }
  }

  async evict(name: string, claimId: string, reason: string): Promise<boolean> {
    const { shard } = this.#shard(realmOf(name, this.#port.cluster));
    return Number(await shard.step(['evict', claimId, name, reason])) === 1;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const { shard } of this.#shards.values()) shard.close();
    await this.#port.close();
  }

  #prefix(realm: string): string {
    return shardPrefix(this.#namespace, realm);
  }

  #shard(realm: string): { readonly shard: Shard; readonly sessions: Set<RedisSession> } {
    const known = this.#shards.get(realm);
    if (known) return known;
    const sessions = new Set<RedisSession>();
    const shard = new Shard({
      port: this.#port,
      clock: this.#clock,
      prefix: this.#prefix(realm),
      leastGuardMs: this.#leastGuardMs,
      waits: () => [...sessions].some((session) => session.waits),
    });
    this.#shards.set(realm, { shard, sessions });
    return { shard, sessions };
  }
}
