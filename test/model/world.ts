/**
 * Where programs live: the simulation's virtual time, network and server, with an instance of Holdfast in each process. The
 * seed of the program decides everything.
 */
import { Holdfast } from '../../src/index.js';
import { Network } from '../simulation/network.js';
import { SimProcess } from '../simulation/process.js';
import { Random } from '../simulation/random.js';
import { Scheduler } from '../simulation/scheduler.js';
import type { Violate } from './reference.js';
import { SimServer } from '../simulation/server.js';
import { simEngine } from '../simulation/sim-engine.js';
import type { InstanceSpec, Program, Step } from './program.js';
import { tapClock, tapEngine } from './taps.js';

/** One instance, in a process of its own. Times are those of its own clock. */
export interface Client {
  readonly name: string;
  readonly process: SimProcess;
  readonly locks: Holdfast;
  readonly ttlMs: number;
  /** It has so few places for waiters that some may be refused. */
  readonly limited: boolean;
  /** When it last went on after a stall. */
  resumedAt: number;
  /** When the engine last answered to an enter. */
  answeredAt: number;
  /** Its looks at lines that are under way, by name. */
  readonly looks: Map<string, number>;
  /** Timers that keep its process alive. */
  readonly timers: Set<object>;
  /** How many functions of users run inside its locks. */
  working: number;
  closing: { at: number; endsAt: number } | undefined;
  /** close() has settled and no function runs any more. */
  closed: boolean;
}

export class World {
  readonly scheduler = new Scheduler();
  readonly server: SimServer;
  readonly clients: readonly Client[];
  readonly #network: Network;
  readonly #random: Random;
  readonly #violate: Violate;
  #healed = false;
  /** Nothing was ever lost, late or stopped in this world: every call is answered within a few delays. */
  calm: boolean;

  constructor(program: Program, violate: Violate) {
    this.#violate = violate;
    const random = new Random(program.seed);
    const { delayMs, loss, twice, pushLoss } = program.network;
    this.#random = random;
    this.calm = loss + pushLoss === 0;
    this.#network = new Network(this.scheduler, random.fork());
    Object.assign(this.#network, {
      meanDelayMs: delayMs,
      lossRate: loss,
      duplicateRate: twice,
      pushLossRate: pushLoss,
    });
    this.server = new SimServer(this.scheduler, random.fork(), (what) => violate('server', what));
    this.clients = program.instances.map((spec, index) => this.#client(`p${index}`, spec));
  }

  /** The event loop stands still: what is due waits until `wakes` has run and the caller's own code after it. */
  stall(client: Client, ms: number, wakes: () => void): Promise<void> {
    this.calm = false;
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
    this.calm = false;
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

  #client(name: string, { ttl, ...options }: InstanceSpec): Client {
    const process = new SimProcess(name, this.scheduler, this.#random.fork());
    const looks = new Map<string, number>();
    const timers = new Set<object>();
    const source = tapEngine(simEngine(process, this.server, this.#network), {
      enterAnswered: () => (client.answeredAt = process.clock.now()),
      looks: (line = '', by) => {
        looks.set(line, (looks.get(line) ?? 0) + by);
        if (looks.get(line)! > 1 && this.calm && !client.closing)
          this.#violate('crowd', `${name} looks at ${line} twice at once`);
      },
      misplaced: (what) => this.#violate('context', `${name}: ${what} runs in the context of a user`),
    });
    const locks = new Holdfast(source, { clock: tapClock(process.clock, timers), ttl, label: name, ...options });
    const own = { looks, timers, answeredAt: -Infinity, resumedAt: 0, working: 0, closing: undefined, closed: false };
    const client: Client = { name, process, locks, ttlMs: ttl, limited: options.maxWaiters !== undefined, ...own };
    return client;
  }
}
