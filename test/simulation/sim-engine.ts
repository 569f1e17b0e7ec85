import type {
  Claim,
  ClaimRef,
  Engine,
  EngineLine,
  EngineSource,
  Fence,
  Fenced,
  OpenOptions,
  Place,
  Pulse,
  RegisterEntry,
  Registers,
  Roster,
  Session,
  SessionListener,
} from '../../src/core/engine.js';
import { EngineError } from '../../src/core/errors.js';
import { traits } from '../../src/engines/memory/traits.js';
import type { Network } from './network.js';
import type { SimProcess } from './process.js';
import type { SimServer } from './server.js';

/** What a client sees of the server: calls that may never be answered, and pushes that may never come. */
export function simEngine(process: SimProcess, server: SimServer, network: Network): EngineSource {
  const link = new Link(process, server, network);
  return { traits, connect: () => Promise.resolve(new SimEngine(link)) };
}

class Link {
  readonly process: SimProcess;
  readonly server: SimServer;
  readonly network: Network;

  constructor(process: SimProcess, server: SimServer, network: Network) {
    this.process = process;
    this.server = server;
    this.network = network;
  }

  /** One remote call. `run` may run never, once, late or twice; so may the answer. */
  call<T>(run: () => T): Promise<T> {
    return new Promise((resolve, reject) => {
      this.network.toServer(this.process, () => {
        if (!this.server.up) {
          // A dead server's host may refuse, or say nothing at all.
          if (this.process.random.chance(0.5))
            this.network.toProcess(this.process, () => reject(new EngineError('refused')));
          return;
        }
        const answer = attempt(run);
        this.network.toProcess(this.process, () => (answer.ok ? resolve(answer.value) : reject(answer.error)));
      });
    });
  }
}

function attempt<T>(run: () => T): { ok: true; value: T } | { ok: false; error: Error } {
  try {
    return { ok: true, value: run() };
  } catch (error) {
    return { ok: false, error: error as Error };
  }
}

class SimEngine implements Engine {
  readonly registers: Registers;
  readonly #link: Link;

  constructor(link: Link) {
    this.#link = link;
    this.registers = new SimRegisters(link);
  }

  async open({ id, ttlMs }: OpenOptions, listener: SessionListener): Promise<Session> {
    const { server, network, process } = this.#link;
    const remote = server.listener((tell) => network.push(process, () => tell(listener)));
    await this.#link.call(() => server.space.open(id, ttlMs, remote, server.time));
    return new SimSession(this.#link, id, ttlMs);
  }

  async *inspect(query: { name?: string; prefix?: string }): AsyncIterable<EngineLine> {
    yield* await this.#link.call(() => [...this.#link.server.space.inspect(query)]);
  }

  evict(name: string, claimId: string, reason: string): Promise<boolean> {
    return this.#link.call(() => this.#link.server.space.evict(name, claimId, reason));
  }

  async [Symbol.asyncDispose](): Promise<void> {
    // Nothing of ours stays open.
  }
}

class SimSession implements Session {
  readonly ttlMs: number;
  readonly #link: Link;
  readonly #id: string;

  constructor(link: Link, id: string, ttlMs: number) {
    this.#link = link;
    this.#id = id;
    this.ttlMs = ttlMs;
  }

  enter(claim: Claim): Promise<Place> {
    const { server } = this.#link;
    return this.#link.call(() => {
      if (server.guarded) throw new EngineError('guarded after a restart without memory');
      const place = server.space.enter(this.#id, claim, server.time);
      if (server.space.nextDeath <= server.time.now) server.complain('an enter has left the dead in line');
      return place;
    });
  }

  leave(claim: ClaimRef): Promise<boolean> {
    const { server } = this.#link;
    return this.#link.call(() => server.space.leave(this.#id, claim, server.time));
  }

  reweigh(claim: Claim): Promise<void> {
    return this.#link.call(() => this.#link.server.space.reweigh(this.#id, claim, claim.weight));
  }

  beat(roster: Roster): Promise<Pulse> {
    const { server } = this.#link;
    return this.#link.call(() => server.space.beat(this.#id, roster, server.time));
  }

  close(): Promise<void> {
    return this.#link.call(() => this.#link.server.space.close(this.#id));
  }
}

class SimRegisters implements Registers {
  readonly #link: Link;

  constructor(link: Link) {
    this.#link = link;
  }

  read(name: string, fence?: Fence): Promise<Fenced<RegisterEntry | undefined>> {
    const { server } = this.#link;
    return this.#link.call(() => server.space.read(name, fence, server.time));
  }

  write(name: string, value: string, token: bigint, keepMs?: number): Promise<Fenced<void>> {
    const { server } = this.#link;
    return this.#link.call(() => server.space.write(name, value, token, server.time, keepMs));
  }
}
