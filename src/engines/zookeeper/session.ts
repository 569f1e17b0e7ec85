/**
 * A session: one of ZooKeeper's, with a connection of its own, and the claims that go with it. What the servers have is the
 * truth; what is kept here only saves questions.
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
import type {
  Claim,
  ClaimRef,
  IndexedClaim,
  Moment,
  OpenOptions,
  Place,
  Pulse,
  Roster,
  Session,
  SessionListener,
} from '../../core/engine.js';
import { agrees, type StandingClaim } from '../../kit/roster.js';
import { type ClientListener, ZooKeeperClient, type ZooKeeperClientOptions } from './client/client.js';
import { CODE, isLost, isStatus } from './client/status.js';
import { explained } from './errors.js';
import { type Entered, Lines, type Spot, type Standing, type Written, written } from './protocol.js';
import { Mailbox } from './mailbox.js';
import { nodeOf, parseNode, type Paths, readerPath } from './keys.js';
import { Proof } from './proof.js';
import { waitingRoom, type ZooKeeperWaiter } from './watches.js';

interface Entry {
  readonly ref: ClaimRef;
  readonly serial: number;
  /** Absent for an orphan that a beat found: an enter that ran after its leave. */
  spot: Spot | undefined;
  state: 'entering' | 'waiting' | 'held';
  /** An enter that is under way; another of the same claim waits for it, so that there are never two nodes. */
  making: Promise<Entered> | undefined;
  /** An answer was lost: whether its node was made has to be looked up. */
  doubtful: boolean;
  standing: Standing | undefined;
  stopWaiting: (() => void) | undefined;
}

export interface SessionSetup {
  readonly client: Omit<ZooKeeperClientOptions, 'timeoutMs' | 'listener' | 'random'>;
  readonly paths: Paths;
  readonly clock: Clock;
  readonly listener: SessionListener;
}

export async function openSession(setup: SessionSetup, { ttlMs }: OpenOptions): Promise<ZooKeeperSession> {
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
    return new ZooKeeperSession(setup, client, proof, mailbox);
  } catch (error) {
    await client.close();
    throw error;
  }
}

export class ZooKeeperSession implements Session {
  readonly ttlMs: number;
  readonly #setup: SessionSetup;
  readonly #client: ZooKeeperClient;
  readonly #proof: Proof;
  readonly #mailbox: Mailbox;
  readonly #lines: Lines;
  readonly #waitingRoom: ReturnType<typeof waitingRoom>;
  readonly #entries = new Map<string, Entry>();
  /** As long as the core itself waits for an answer. */
  readonly #callMs: number;
  #closed = false;

  constructor(setup: SessionSetup, client: ZooKeeperClient, proof: Proof, mailbox: Mailbox) {
    this.#setup = setup;
    this.#client = client;
    this.#proof = proof;
    this.#mailbox = mailbox;
    this.ttlMs = client.timeoutMs;
    this.#callMs = this.ttlMs / 3;
    this.#lines = new Lines(client);
    this.#waitingRoom = waitingRoom({ lines: this.#lines, client, clock: setup.clock });
    mailbox.listen((claimId, reason) => this.#setup.listener.lost(claimId, { reason: 'evicted', detail: reason }));
  }

  async enter(claim: Claim): Promise<Place> {
    if (this.#closed) return { state: 'gone' };
    const entry = this.#entries.get(claim.id) ?? this.#newEntry(claim);
    try {
      entry.making ??= this.#make(entry, claim);
      return this.#placed(entry, await entry.making);
    } catch (error) {
      if (isStatus(error, CODE.sessionExpired)) return { state: 'gone' };
      return explained(Promise.reject(error));
    }
  }

  async leave(ref: ClaimRef): Promise<boolean> {
    const entry = this.#entries.get(ref.id);
    if (!entry) return false;
    entry.stopWaiting?.();
    // Its node may be on its way: answered, or lost with the connection, it does not take long.
    await entry.making?.catch(() => {});
    const stood = await explained(this.#leave(entry).catch(goneWithSession));
    if (!entry.making) this.#forget(entry);
    return stood;
  }

  async reweigh(claim: Claim): Promise<void> {
    const entry = this.#entries.get(claim.id);
    if (!entry?.standing) return;
    const { standing } = entry;
    entry.spot = this.#spot(claim);
    const data = dataOf(claim, standing);
    const lightened = this.#client.insist(this.#callMs, () => this.#lines.lighten(standing, data));
    entry.standing = await explained(lightened);
  }

  async beat(roster: Roster): Promise<Pulse> {
    if (this.#closed) return { alive: false };
    try {
      await this.#pause();
      const { paths, since } = await this.#client.insist(this.#callMs, () => this.#ask());
      this.#waitingRoom.check();
      const standing = await this.#standing(paths);
      return agrees(roster, standing.map(standingClaim))
        ? { alive: true, since }
        : { alive: true, since, index: standing.map(indexed) };
    } catch (error) {
      if (isStatus(error, CODE.sessionExpired)) return { alive: false };
      return explained(Promise.reject(error));
    }
  }

  async close(): Promise<void> {
    this.#closed = true;
    for (const { stopWaiting } of this.#entries.values()) stopWaiting?.();
    this.#entries.clear();
    await this.#client.close();
  }

  // --- beats ----------------------------------------------------------------------------------------------------

  async #pause(): Promise<void> {
    const { clock } = this.#setup;
    const pauseMs = this.#proof.pauseMs(this.#now(), this.ttlMs);
    if (pauseMs > 0) await new Promise<void>((resolve) => void clock.timer(pauseMs, resolve).unref());
  }

  async #ask(): Promise<{ paths: readonly string[]; since: Moment }> {
    const asked = this.#now();
    const [, paths] = await Promise.all([this.#client.sync(), this.#client.getEphemerals(), this.#mailbox.read()]);
    const since = this.#proof.since(asked.now, this.ttlMs);
    this.#proof.heard(asked, this.#now().now);
    return { paths, since };
  }

  #now(): Moment {
    const { clock } = this.#setup;
    return { now: clock.now(), wall: clock.wall() };
  }

  // --- claims ---------------------------------------------------------------------------------------------------

  async #make(entry: Entry, claim: Claim): Promise<Entered> {
    const spot = this.#spot(claim);
    const { doubtful, standing } = entry;
    try {
      if (!standing) return await this.#lines.enter(spot, dataOf(claim), doubtful);
      const found = await this.#lines.look(spot, standing);
      return found.state === 'absent' ? { state: 'gone' } : found;
    } catch (error) {
      if (isLost(error)) entry.doubtful = true;
      throw error;
    } finally {
      entry.making = undefined;
    }
  }

  #placed(entry: Entry, entered: Entered): Place {
    if (entered.state !== 'held' && entered.state !== 'waiting') {
      if (!entry.making) this.#forget(entry);
      return entered;
    }
    // Also one that was left meanwhile, if its node was made only now: the core will leave it again.
    this.#entries.set(entry.ref.id, entry);
    entry.standing = entered.standing;
    // Who held once holds: a look that was older may say otherwise.
    if (entered.state === 'held' || entry.state === 'held') {
      entry.state = 'held';
      entry.stopWaiting?.();
      return { state: 'held', token: entered.standing.token };
    }
    entry.state = 'waiting';
    this.#wait(entry, entered);
    return { state: 'waiting' };
  }

  #wait(entry: Entry, { standing, obstacle }: Extract<Entered, { state: 'waiting' }>): void {
    const { spot } = entry;
    const { id } = entry.ref;
    if (!spot || this.#closed) return;
    entry.stopWaiting?.();
    const waiter: ZooKeeperWaiter = {
      spot,
      standing,
      key: nodeOf(standing.path),
      crowd: spot.claim.line.kind === 'semaphore' ? spot.line : undefined,
      granted: () => {
        entry.state = 'held';
        this.#setup.listener.granted(id, standing.token);
      },
      vanished: () => this.#setup.listener.lost(id, { reason: 'session' }),
    };
    entry.stopWaiting = this.#waitingRoom.wait(waiter, obstacle);
  }

  /** By the node that we know of, or the one that there may be though we were never told. */
  async #leave(entry: Entry): Promise<boolean> {
    const { ref, standing, spot, doubtful } = entry;
    const stood = standing ? await this.#lines.leave(standing, this.#callMs) : false;
    if (!doubtful || !spot) return stood;
    const found = await this.#client.insist(this.#callMs, () => this.#lines.find({ claim: ref, line: spot.line }));
    return found ? this.#lines.leave(found.standing, this.#callMs) : stood;
  }

  #newEntry(claim: Claim): Entry {
    const entry: Entry = {
      ref: { id: claim.id, line: claim.line },
      serial: claim.serial,
      spot: this.#spot(claim),
      state: 'entering',
      making: undefined,
      doubtful: false,
      standing: undefined,
      stopWaiting: undefined,
    };
    this.#entries.set(claim.id, entry);
    return entry;
  }

  #forget(entry: Entry): void {
    entry.stopWaiting?.();
    this.#entries.delete(entry.ref.id);
  }

  #spot(claim: Claim): Spot {
    return { claim, line: this.#setup.paths.line(claim.line) };
  }

  // --- the index ------------------------------------------------------------------------------------------------

  /** Our claims that stand, by everything that goes with the session. */
  async #standing(paths: readonly string[]): Promise<readonly Entry[]> {
    const found: Entry[] = [];
    for (const path of paths) {
      const node = nodeOf(path);
      const id = (parseNode(node, 'semaphore') ?? parseNode(node, 'lock'))?.id;
      if (id === undefined || path === this.#mailbox.path) continue;
      const entry = this.#entries.get(id) ?? (await this.#adopt(id, path));
      if (!entry) continue;
      if (this.#isIts(entry, path)) found.push(entry);
      else this.#lines.discard(path);
    }
    return found;
  }

  /** False: a second node of the same claim. There should be none; if there is, it would stand in everybody's way. */
  #isIts(entry: Entry, path: string): boolean {
    const { standing } = entry;
    if (!standing || standing.path === path) return true;
    if (path !== readerPath(standing.path)) return false;
    // A downgrade whose answer was lost: the claim stands under its other name.
    entry.standing = { ...standing, path };
    return true;
  }

  /** An enter that ran after its leave, which we had forgotten by then. */
  async #adopt(id: string, path: string): Promise<Entry | undefined> {
    const line = this.#setup.paths.lineOf(path) ?? (await this.#lineIn(path));
    if (!line) return undefined;
    const standing = { path, token: 0n, since: 0 };
    const nothing = { spot: undefined, making: undefined, stopWaiting: undefined };
    const entry: Entry = { ref: { id, line }, serial: 0, state: 'waiting', doubtful: false, standing, ...nothing };
    this.#entries.set(id, entry);
    return entry;
  }

  /** With keys of the user's own, only the node itself knows which lock it is of. */
  async #lineIn(path: string): Promise<ClaimRef['line'] | undefined> {
    const node = await this.#client.getData(path).catch(() => undefined);
    const name = node && written(node.data)?.name;
    return name === undefined ? undefined : { kind: 'lock', name };
  }
}

function standingClaim({ ref, serial, state }: Entry): StandingClaim {
  return { id: ref.id, serial, held: state === 'held' };
}

function goneWithSession(error: unknown): false {
  if (isStatus(error, CODE.sessionExpired)) return false;
  throw error;
}

function indexed({ ref, state, standing }: Entry): IndexedClaim {
  const held = state === 'held';
  return { ...ref, state: held ? 'held' : 'waiting', token: held ? standing?.token : undefined };
}

/** What protocol.ts calls a claim's data. */
function dataOf({ note, line }: Claim, before?: Standing): string {
  const data: Written = { note, name: line.name, ...(before && { token: `${before.token}`, since: before.since }) };
  return JSON.stringify(data);
}
