import type { Clock } from '../../core/clock.js';
import type {
  Engine,
  EngineLine,
  LineQuery,
  OpenOptions,
  Registers,
  Session,
  SessionListener,
} from '../../core/engine.js';
import { SwappedRegisters } from '../../kit/swapped-registers.js';
import { ZooKeeperClient, type ZooKeeperClientOptions } from './client/client.js';
import { explained } from './errors.js';
import type { Paths } from './keys.js';
import { findClaim, listLines } from './listing.js';
import { post } from './mailbox.js';
import { RegisterNodes } from './registers.js';
import { openSession } from './session.js';

type Connecting = Omit<ZooKeeperClientOptions, 'timeoutMs' | 'listener' | 'random'>;

/** Of the session for everything that is no claim. Nothing depends on how long it lives. */
const DESK_TIMEOUT_MS = 10_000;

export class ZooKeeperEngine implements Engine {
  readonly registers: Registers;
  readonly #connecting: Connecting;
  readonly #paths: Paths;
  readonly #clock: Clock;
  /** For what belongs to no session: listings, evictions and registers. */
  #desk: Promise<ZooKeeperClient> | undefined;

  constructor(connecting: Connecting, paths: Paths, clock: Clock) {
    this.#connecting = connecting;
    this.#paths = paths;
    this.#clock = clock;
    this.registers = new SwappedRegisters(new RegisterNodes(() => this.#atDesk(), paths), clock);
  }

  open(options: OpenOptions, listener: SessionListener): Promise<Session> {
    const setup = { client: this.#connecting, paths: this.#paths, clock: this.#clock, listener };
    return explained(openSession(setup, options));
  }

  async *inspect(query: LineQuery): AsyncIterable<EngineLine> {
    yield* listLines(await this.#atDesk(), this.#paths, query);
  }

  async evict(name: string, claimId: string, reason: string): Promise<boolean> {
    const client = await this.#atDesk();
    const found = await findClaim(client, this.#paths, name, claimId);
    if (!found) return false;
    const at = { mailbox: this.#paths.session(found.session), claim: found.path };
    return explained(post(client, at, [claimId, reason]));
  }

  async [Symbol.asyncDispose](): Promise<void> {
    const desk = await this.#desk?.catch(() => undefined);
    await desk?.close();
  }

  /** Made when it is needed, and made anew when its session has expired. */
  #atDesk(): Promise<ZooKeeperClient> {
    this.#desk ??= explained(this.#openDesk());
    const desk = this.#desk;
    desk.catch(() => this.#leaveDesk(desk));
    return desk;
  }

  async #openDesk(): Promise<ZooKeeperClient> {
    const client: ZooKeeperClient = new ZooKeeperClient({
      ...this.#connecting,
      timeoutMs: DESK_TIMEOUT_MS,
      random: () => this.#clock.random(),
      pings: true,
      listener: { expired: () => (this.#desk = undefined) },
    });
    try {
      await client.open(DESK_TIMEOUT_MS / 3);
      return client;
    } catch (error) {
      await client.close();
      throw error;
    }
  }

  #leaveDesk(desk: Promise<ZooKeeperClient>): void {
    if (this.#desk === desk) this.#desk = undefined;
  }
}
