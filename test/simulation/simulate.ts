/**
 * One simulated half minute: the real core, locks and all, in several processes, on a simulated network and server,
 * under a virtual clock. The seed decides everything. First faults, then a healed phase in which everybody must be
 * served, then an orderly end after which nothing may be left.
 */
import { Holdfast } from '../../src/index.js';
import { Network } from './network.js';
import { SimProcess } from './process.js';
import { Random } from './random.js';
import { Referee } from './referee.js';
import { Scheduler } from './scheduler.js';
import { SimServer } from './server.js';
import { simEngine } from './sim-engine.js';
import { type Phase, Workload } from './workload.js';

const FAULTY_MS = 22_000;
const HEALED_MS = 8_000;
/** Far more than ten times what everybody before us in line needs once faults are over; less than the healed phase. */
const LONGEST_WAIT_MS = 6_000;

export interface Outcome {
  readonly seed: number;
  readonly violations: readonly string[];
  readonly events: number;
  readonly grants: number;
  readonly simulatedMs: number;
}

interface Client {
  process: SimProcess;
  locks: Holdfast;
  workload: Workload;
  tasks: Promise<unknown>;
}

export async function simulate(seed: number, trace = false): Promise<Outcome> {
  const world = new World(seed, trace);
  await world.live();
  const { scheduler, referee } = world;
  return {
    seed,
    violations: referee.violations,
    events: scheduler.events,
    grants: referee.grants,
    simulatedMs: scheduler.now,
  };
}

class World {
  readonly scheduler = new Scheduler();
  readonly referee: Referee;
  readonly #random: Random;
  readonly #faults: Random;
  readonly #network: Network;
  readonly #server: SimServer;
  readonly #phase: Phase = { healed: false, stopping: false };
  readonly #clients: Client[] = [];
  /** A suspension is told by the wall clock alone: one that is set back in the same moment hides it, a stated limit. */
  readonly #suspends: boolean;
  readonly #jumps: boolean;
  readonly #forgets: boolean;
  /** Whether the next process to be born never lets the lock go free. */
  #hot: boolean;
  #born = 0;

  constructor(seed: number, trace: boolean) {
    this.#random = new Random(seed);
    this.#faults = this.#random.fork();
    this.#suspends = this.#random.chance(0.4);
    this.#jumps = this.#random.chance(0.4);
    this.#forgets = this.#random.chance(0.4);
    this.referee = new Referee(this.scheduler, {
      trace,
      steadyWall: !this.#suspends && !this.#jumps,
      keepsMemory: !this.#suspends && !this.#forgets,
    });
    this.#network = new Network(this.scheduler, this.#random.fork());
    this.#server = new SimServer(this.scheduler, this.#random.fork(), (what) => this.referee.violate(what));
    this.#hot = this.#random.chance(0.2);
    const clients = 3 + this.#random.int(2) + (this.#hot ? 1 : 0);
    for (let i = 0; i < clients; i += 1) this.#clients.push(this.#birth());
  }

  async live(): Promise<void> {
    const watch = (): void => this.referee.checkExclusion();
    this.#misfortune();
    await this.scheduler.run(FAULTY_MS, watch);
    this.#heal();
    await this.scheduler.run(FAULTY_MS + HEALED_MS, watch);
    this.referee.checkStarvation(LONGEST_WAIT_MS);
    this.#phase.stopping = true;
    await this.#until(Promise.all(this.#clients.map(({ tasks }) => tasks)), 10_000, watch);
    // What a lost leave left behind is found by the next beat, or goes with its session.
    await this.scheduler.run(this.scheduler.now + 3_000, watch);
    this.#expectNothingLeft('after everybody released');
    await this.#until(Promise.all(this.#clients.map(({ locks }) => locks.close())), 5_000, watch);
    this.referee.checkTold();
    for (const { what } of this.referee.unsettled()) this.referee.violate(`${what} never settled`);
    this.#expectNothingLeft('after everybody closed');
  }

  #birth(): Client {
    this.#born += 1;
    const process = new SimProcess(`p${this.#born}`, this.scheduler, this.#random.fork());
    const source = simEngine(process, this.#server, this.#network);
    const { random } = process;
    const ttl = random.pick([1_000, 1_000, 2_000]);
    const locks = new Holdfast(source, { clock: process.clock, ttl, label: process.name, cohort: random.chance(0.7) });
    const workload = new Workload(process, locks, this.referee, this.#phase);
    const reads = random.chance(0.5);
    const task = this.#hot ? () => workload.hotTask(reads) : () => workload.task();
    const tasks = Array.from({ length: this.#hot ? 4 : 2 + random.int(3) }, task);
    this.#hot = false;
    return { process, locks, workload, tasks: Promise.all(tasks) };
  }

  #misfortune(): void {
    const { suspend, jump, forget, ...others } = this.#misfortunes();
    const kinds = Object.values(others).filter(() => this.#faults.chance(0.5));
    if (this.#suspends) kinds.push(suspend!);
    if (this.#jumps) kinds.push(jump!);
    if (this.#forgets) kinds.push(forget!);
    const strike = (): void => {
      if (this.#phase.healed || kinds.length === 0) return;
      this.#faults.pick(kinds)();
      this.scheduler.after(this.#faults.around(900), strike);
    };
    this.scheduler.after(this.#faults.around(900), strike);
  }

  #misfortunes(): Record<string, () => void> {
    const faults = this.#faults;
    const someone = (): Client => faults.pick(this.#clients);
    const forAWhile = (who: string, what: string, meanMs: number, begin: () => void, end: () => void): void => {
      this.referee.log(who, what);
      begin();
      this.scheduler.after(faults.around(meanMs), () => {
        this.referee.log(who, `${what} is over`);
        end();
      });
    };
    return {
      pause: () => {
        const { process } = someone();
        forAWhile(
          process.name,
          'paused',
          900,
          () => process.stop('paused'),
          () => process.resume(),
        );
      },
      suspend: () => {
        const { process } = someone();
        forAWhile(
          process.name,
          'suspended',
          1_200,
          () => process.stop('suspended'),
          () => process.resume(),
        );
      },
      kill: () => this.#kill(faults.int(this.#clients.length)),
      cut: () => {
        const { process } = someone();
        forAWhile(
          process.name,
          'cut off',
          900,
          () => this.#network.cut(process, true),
          () => this.#network.cut(process, false),
        );
      },
      deafen: () => {
        const { process } = someone();
        forAWhile(
          process.name,
          'deaf',
          600,
          () => this.#network.deafen(process, true),
          () => this.#network.deafen(process, false),
        );
      },
      crash: () => {
        this.referee.log('server', 'crashes');
        this.#server.crash(faults.around(500), true);
      },
      forget: () => {
        this.referee.log('server', 'crashes and forgets');
        this.#server.crash(faults.around(300), false);
      },
      hang: () => {
        const { process } = this.#server;
        forAWhile(
          'server',
          'hangs',
          500,
          () => process.stop('paused'),
          () => process.resume(),
        );
      },
      jump: () => someone().process.jumpWall(faults.between(this.#suspends ? 0 : -20_000, 20_000)),
      slow: () => {
        const before = this.#network.meanDelayMs;
        const delay = (meanMs: number): void => {
          if (!this.#phase.healed) this.#network.meanDelayMs = meanMs;
        };
        forAWhile(
          'network',
          'slow',
          1_500,
          () => delay(150),
          () => delay(before),
        );
      },
      evict: () => {
        const { process, workload } = someone();
        if (process.running) void workload.evictOne();
      },
    };
  }

  #kill(index: number): void {
    this.referee.log(this.#clients[index]!.process.name, 'is killed');
    this.#clients[index]!.process.kill();
    this.#clients[index] = this.#birth();
  }

  #heal(): void {
    this.referee.log('world', 'is healed');
    this.#phase.healed = true;
    this.#network.heal();
    this.#server.process.resume();
    for (const { process } of this.#clients) process.resume();
  }

  /** Runs until the promise has settled; a promise that does not in time is a violation. */
  async #until(promise: Promise<unknown>, limitMs: number, watch: () => void): Promise<void> {
    let settled = false;
    const settle = (): void => void (settled = true);
    promise.then(settle, (error: unknown) => {
      settle();
      this.referee.violate(`unexpected ${String(error)}`);
    });
    await this.scheduler.run(this.scheduler.now + limitMs, watch, () => settled);
    if (settled) return;
    for (const { process, what } of this.referee.unsettled()) this.referee.violate(`${process.name}: ${what} is stuck`);
    if (this.referee.unsettled().length === 0) this.referee.violate('something is stuck');
  }

  #expectNothingLeft(when: string): void {
    const { space, time } = this.#server;
    space.reap(time);
    for (const { kind, name, claims } of space.inspect({})) {
      this.referee.violate(
        `${when} the ${kind} ${name} still has ${claims.length} claims: ${claims.map(({ id }) => id).join(', ')}`,
      );
    }
  }
}
