/**
 * Where programs live: the simulation's virtual time, network and server, with an instance of Holdfast in each process. The
 * seed of the program decides everything.
 */
import type { Engine, EngineSource, Session } from '../../src/core/engine.js';
import { Holdfast } from '../../src/index.js';
import { Network } from '../simulation/network.js';
import { SimProcess } from '../simulation/process.js';
import { Random } from '../simulation/random.js';
import { Scheduler } from '../simulation/scheduler.js';
import { SimServer } from '../simulation/server.js';
import { simEngine } from '../simulation/sim-engine.js';
import type { Program, Step } from './program.js';

/** One instance, in a process of its own. Times are those of its own clock. */
export interface Client {
  readonly name: string;
  readonly process: SimProcess;
  readonly locks: Holdfast;
  readonly ttlMs: number;
  /** When it last went on after a stall. */
  resumedAt: number;
  /** When the engine last answered to an enter, by line. */
  readonly answeredAt: Map<string, number>;
  closing: { at: number; endsAt: number } | undefined;
}

export class World {
  readonly scheduler = new Scheduler();
  readonly server: SimServer;
  readonly clients: readonly Client[];
  readonly #network: Network;
  readonly #random: Random;
  #healed = false;

  constructor(program: Program, complain: (what: string) => void) {
    const random = new Random(program.seed);
    const { delayMs, loss, twice, pushLoss } = program.network;
    this.#random = random;
    this.#network = new Network(this.scheduler, random.fork());
    Object.assign(this.#network, {
      meanDelayMs: delayMs,
      lossRate: loss,
      duplicateRate: twice,
      pushLossRate: pushLoss,
    });
    this.server = new SimServer(this.scheduler, random.fork(), complain);
    this.clients = program.instances.map(({ ttl, cohort }, index) => this.#client(`p${index}`, ttl, cohort));
  }

  /** The event loop stands still: what is due waits until `wakes` has run and the caller's own code after it. */
  stall(client: Client, ms: number, wakes: () => void): Promise<void> {
    client.process.stop('paused');
    return new Promise((resolve) => {
      this.scheduler.after(ms, () => {
        client.process.resume();
        client.resumedAt = client.process.clock.now();
        wakes();
        resolve();
      });
    });
  }

  strike({ process }: Client, what: (Step & { do: 'fault' })['what'], ms: number): void {
    if (this.#healed) return;
    const [begin, end] = {
      cut: [() => this.#network.cut(process, true), () => this.#network.cut(process, false)],
      deafen: [() => this.#network.deafen(process, true), () => this.#network.deafen(process, false)],
      hang: [() => this.server.process.stop('paused'), () => this.server.process.resume()],
    }[what] as [() => void, () => void];
    begin();
    this.scheduler.after(ms, end);
  }

  heal(): void {
    this.#healed = true;
    this.#network.heal();
    this.server.process.resume();
  }

  /** Runs until `done`, or for so long. */
  async run(ms: number, afterEach: () => void, done: () => boolean = () => false): Promise<void> {
    await this.scheduler.run(this.scheduler.now + ms, afterEach, done);
  }

  #client(name: string, ttlMs: number, cohort: boolean): Client {
    const process = new SimProcess(name, this.scheduler, this.#random.fork());
    const answeredAt = new Map<string, number>();
    const answered = (line: string): unknown => answeredAt.set(line, process.clock.now());
    const source = listening(simEngine(process, this.server, this.#network), answered);
    const locks = new Holdfast(source, { clock: process.clock, ttl: ttlMs, label: name, cohort });
    return { name, process, locks, ttlMs, resumedAt: 0, answeredAt, closing: undefined };
  }
}

/** The same engine, and who listens hears of every answer to an enter before the core does. */
function listening(source: EngineSource, answered: (line: string) => void): EngineSource {
  return {
    ...source,
    connect: async (setup) => {
      const engine = await source.connect(setup);
      const open: Engine['open'] = async (options, listener) => {
        const session = await engine.open(options, listener);
        const enter: Session['enter'] = async (claim) => {
          const place = await session.enter(claim);
          answered(`${claim.line.kind} ${claim.line.name}`);
          return place;
        };
        return overlay(session, { enter });
      };
      return overlay(engine, { open });
    },
  };
}

function overlay<T extends object>(object: T, own: Partial<T>): T {
  return new Proxy(object, {
    get: (target, key) => {
      if (key in own) return own[key as keyof T];
      const value: unknown = Reflect.get(target, key);
      return typeof value === 'function' ? (value as (...args: unknown[]) => unknown).bind(target) : value;
    },
  });
}
