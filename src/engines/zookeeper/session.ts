/**
 * A session: one of ZooKeeper's, with a connection of its own, and the nodes that go with it. What all such sessions have in common
 * is kit/ephemeral-session.ts.
 *
 * A beat asks three things at once, in this order:
 * - `sync`: that the leader still knows us. A ping would not do (proof.ts).
 * - everything that goes with the session, which is the index of our claims. The answer grows with them: about 100 bytes each.
 * - the session's own node, where evictions are written: one that we were not told of is found here.
 *
 * The connection is the client's affair. A claim is lost when the servers say that its session has expired, or when our own
 * clock says that they may have; never because a connection was.
 */
import type { Clock } from '../../core/clock.js';
import type { Claim, LineRef, Moment, OpenOptions, Session, SessionListener } from '../../core/engine.js';
import {
  EphemeralSession,
  type EphemeralPort,
  type KnownClaim,
  type Listing,
  type WaitingClaim,
} from '../../kit/ephemeral-session.js';
import type { Crowd, ObstacleWatch } from '../../kit/waiting-room.js';
import type { ClientListener } from './client/attachment.js';
import { ZooKeeperClient, type ZooKeeperClientOptions } from './client/client.js';
import { CODE, isLost, isStatus } from './client/status.js';
import { explained } from './errors.js';
import { nodeOf, parseNode, type Paths, readerPath } from './keys.js';
import { Mailbox } from './mailbox.js';
import { Proof } from './proof.js';
import {
  Lines,
  type NodeEntered,
  type NodeFooting,
  type NodeFound,
  type Obstacle,
  type ClaimSpot,
  type Written,
  written,
} from './protocol.js';
import { Permits, watchNode } from './watches.js';

export interface SessionSetup {
  readonly client: Omit<ZooKeeperClientOptions, 'timeoutMs' | 'listener' | 'random'>;
  readonly paths: Paths;
  readonly clock: Clock;
  readonly listener: SessionListener;
}

export async function openSession(setup: SessionSetup, { ttlMs }: OpenOptions): Promise<Session> {
  const { clock, listener, paths } = setup;
  const proof = new Proof();
  const news: ClientListener = {
    attached: (askedAgoMs) => {
      const now = clock.now();
      proof.heard({ now: now - askedAgoMs, wall: clock.wall() - askedAgoMs }, now);
    },
    expired: () => listener.ended({ reason: 'session' }),
  };
  const random = (): number => clock.random();
  const client = new ZooKeeperClient({ ...setup.client, timeoutMs: ttlMs, random, listener: news });
  try {
    await client.open(ttlMs / 3);
    const mailbox = await Mailbox.open(client, paths.session(client.sessionId), ttlMs / 3);
    const port = new Nodes({ client, paths, clock, proof, mailbox });
    const session = new EphemeralSession({ ttlMs: client.timeoutMs, clock, listener, port });
    mailbox.listen((claimId, reason) => session.evicted(claimId, reason));
    return session;
  } catch (error) {
    await client.close();
    throw error;
  }
}

interface NodesSetup {
  readonly client: ZooKeeperClient;
  readonly paths: Paths;
  readonly clock: Clock;
  readonly proof: Proof;
  readonly mailbox: Mailbox;
}

/** The ephemeral nodes of one session. */
class Nodes implements EphemeralPort<NodeFooting, Obstacle> {
  readonly #setup: NodesSetup;
  readonly #client: ZooKeeperClient;
  readonly #lines: Lines;
  /** As long as the core itself waits for an answer. */
  readonly #callMs: number;
  /** Claims whose enter had no answer: whether there is a node has to be looked up. */
  readonly #doubtful = new Set<string>();

  constructor(setup: NodesSetup) {
    this.#setup = setup;
    this.#client = setup.client;
    this.#callMs = setup.client.timeoutMs / 3;
    this.#lines = new Lines(setup.client);
  }

  async enter(claim: Claim, footing: NodeFooting | undefined): Promise<NodeEntered> {
    const entering = footing ? this.#enterAgain(claim, footing) : this.#enter(claim);
    return explained(entering.catch(onExpiry({ state: 'gone' })));
  }

  async #enter(claim: Claim): Promise<NodeEntered> {
    try {
      const entered = await this.#lines.enter(this.#spot(claim), dataOf(claim), this.#doubtful.has(claim.id));
      this.#doubtful.delete(claim.id);
      return entered;
    } catch (error) {
      if (isLost(error)) this.#doubtful.add(claim.id);
      throw error;
    }
  }

  async #enterAgain(claim: Claim, footing: NodeFooting): Promise<NodeEntered> {
    const found = await this.#lines.look(this.#spot(claim), footing);
    return found.state === 'absent' ? { state: 'gone' } : found;
  }

  async leave(known: KnownClaim<NodeFooting>): Promise<boolean> {
    const stood = await explained(this.#leave(known).catch(onExpiry(false)));
    this.#doubtful.delete(known.ref.id);
    return stood;
  }

  /** By the node that we know of, or the one that there may be though we were never told. */
  async #leave({ ref, claim, footing }: KnownClaim<NodeFooting>): Promise<boolean> {
    const stood = footing ? await this.#lines.leave(footing, this.#callMs) : false;
    if (!claim || !this.#doubtful.has(ref.id)) return stood;
    const found = await this.#client.insist(this.#callMs, () => this.#lines.find(this.#spot(claim)));
    return found ? this.#lines.leave(found.footing, this.#callMs) : stood;
  }

  reweigh(claim: Claim, footing: NodeFooting): Promise<NodeFooting> {
    const data = dataOf(claim, footing);
    return explained(this.#client.insist(this.#callMs, () => this.#lines.lighten(footing, data)));
  }

  close(): Promise<void> {
    return this.#client.close();
  }

  // --- waiting ------------------------------------------------------------------------------------------------------

  look({ claim, footing }: WaitingClaim<NodeFooting>): Promise<NodeFound> {
    return this.#lines.look(this.#spot(claim), footing);
  }

  watch(obstacle: Obstacle, changed: () => void): ObstacleWatch<Obstacle> {
    return watchNode(this.#setup, obstacle, changed);
  }

  crowd({ claim }: WaitingClaim<NodeFooting>, changed: () => void): Crowd<WaitingClaim<NodeFooting>, Obstacle> {
    return new Permits({ client: this.#client, lines: this.#lines }, this.#spot(claim), changed);
  }

  // --- beats --------------------------------------------------------------------------------------------------------

  async beat(): Promise<Listing | undefined> {
    return explained(this.#beat().catch(onExpiry(undefined)));
  }

  async #beat(): Promise<Listing> {
    await this.#pause();
    const { paths, since } = await this.#client.insist(this.#callMs, () => this.#ask());
    const entries = paths.flatMap((path) => {
      const id = this.#claimIn(path);
      return id === undefined ? [] : [{ id, name: path }];
    });
    return { entries, since };
  }

  async #pause(): Promise<void> {
    const { clock, proof } = this.#setup;
    const pauseMs = proof.pauseMs(this.#now(), this.#client.timeoutMs);
    if (pauseMs > 0) await new Promise<void>((resolve) => void clock.timer(pauseMs, resolve).unref());
  }

  async #ask(): Promise<{ paths: readonly string[]; since: Moment }> {
    const { proof, mailbox } = this.#setup;
    const asked = this.#now();
    const [, paths] = await Promise.all([this.#client.sync(), this.#client.getEphemerals(), mailbox.read()]);
    const since = proof.since(asked.now, this.#client.timeoutMs);
    proof.heard(asked, this.#now().now);
    return { paths, since };
  }

  #now(): Moment {
    const { clock } = this.#setup;
    return { now: clock.now(), wall: clock.wall() };
  }

  // --- nodes --------------------------------------------------------------------------------------------------------

  #spot(claim: Claim): ClaimSpot {
    return { claim, line: this.#setup.paths.line(claim.line) };
  }

  #claimIn(path: string): string | undefined {
    const node = nodeOf(path);
    if (path === this.#setup.mailbox.path) return undefined;
    return (parseNode(node, 'semaphore') ?? parseNode(node, 'lock'))?.id;
  }

  recognize(footing: NodeFooting, path: string): NodeFooting | undefined {
    if (path === footing.path) return footing;
    // A downgrade whose answer was lost: the claim stands under its other name.
    return path === readerPath(footing.path) ? { ...footing, path } : undefined;
  }

  async adopt(id: string, path: string): Promise<KnownClaim<NodeFooting> | undefined> {
    const line = this.#setup.paths.lineOf(path) ?? (await this.#lineIn(path));
    return line && { ref: { id, line }, claim: undefined, footing: { path, token: 0n, since: 0 } };
  }

  /** With keys of the user's own, only the node itself knows which lock it is of. */
  async #lineIn(path: string): Promise<LineRef | undefined> {
    const node = await this.#client.getData(path).catch(() => undefined);
    const name = node && written(node.data)?.name;
    return name === undefined ? undefined : { kind: 'lock', name };
  }

  discard(path: string): void {
    this.#lines.discard(path);
  }
}

/** What the end of our session comes to; other errors are thrown on. */
function onExpiry<T>(value: T): (error: unknown) => T {
  return (error) => {
    if (isStatus(error, CODE.sessionExpired)) return value;
    throw error;
  };
}

/** What protocol.ts calls a claim's data. */
function dataOf({ note, line }: Claim, before?: NodeFooting): string {
  const data: Written = { note, name: line.name, ...(before && { token: `${before.token}`, since: before.since }) };
  return JSON.stringify(data);
}
