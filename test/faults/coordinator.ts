/**
 * One run: an engine, its workers, and what is done to them. Calm, then faults, then healed, then over; all of it is in
 * the history, which the checkers judge.
 */
import { type ChildProcess, fork } from 'node:child_process';
import { closeSync, mkdirSync, openSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { Holdfast, type Traits } from 'holdfast';
import { type ClockShim, clockShim } from '../servers/clock-shim.js';
import type { Host } from '../servers/network.js';
import { eventually } from '../servers/wait.js';
import { Random } from '../simulation/random.js';
import { guardedBy } from './guards.js';
import {
  FINAL,
  type HistoryEvent,
  HistoryWriter,
  type LeftoverEvent,
  nowMicros,
  PROPERTIES,
  readHistory,
  STARVED,
} from './history.js';
import { NEMESES, type Scene, type Victim } from './nemeses.js';
import { observe } from './observer.js';
import { Resource } from './resource.js';
import { isStarving, Starvation } from './starvation.js';
import type { Target, TargetKind } from './targets.js';
import { STRANGER } from './tenant.js';
import type { FromWorker, LockKind, ToWorker, WorkerSetup } from './worker-setup.js';
import { isExclusive, namesFor, sparedOf } from './workload.js';

export interface RunOptions {
  readonly engine: string;
  readonly kind: TargetKind;
  readonly target: Target;
  readonly traits: Traits;
  readonly lock: LockKind;
  readonly nemeses: readonly string[];
  readonly seconds: number;
  readonly seed: number;
  readonly ttlMs: number;
  readonly stalls: number;
  /** Where the peers are installed, for those runs. */
  readonly peers: string;
  /** Where histories and logs go. */
  readonly folder: string;
}

type Left = Pick<LeftoverEvent, 'what' | 'detail'>;

const WORKERS = 5;
const WATCH_MS = 25;
/** How long everybody has to come to an end. */
const END_MS = 60_000;

/** The files of its history. */
export async function run(options: RunOptions): Promise<string[]> {
  const coordinator = new Coordinator(options);
  try {
    return await coordinator.run();
  } finally {
    await coordinator.end();
  }
}

class Coordinator {
  readonly #options: RunOptions;
  readonly #random: Random;
  readonly #resource = new Resource();
  readonly #history: HistoryWriter;
  readonly #files: string[];
  readonly #names: readonly string[];
  readonly #namespace: string;
  readonly #seats = new Map<string, Seat>();
  #observer: Holdfast | undefined;
  #faults = 0;
  #over = false;
  #watchdog: NodeJS.Timeout | undefined;
  #observing: Promise<void> | undefined;

  constructor(options: RunOptions) {
    this.#options = options;
    this.#random = new Random(options.seed);
    // One of its own for each run: tokens that a clock ahead has left behind are not to be met again by one that is back.
    this.#namespace = `faults-${options.seed}-${options.lock}-${options.nemeses.join('-')}`;
    const names = namesFor(options.traits);
    this.#names = options.lock === 'holdfast' ? names : names.filter(isExclusive);
    mkdirSync(options.folder, { recursive: true });
    this.#files = [join(options.folder, 'coordinator.jsonl')];
    this.#history = new HistoryWriter(this.#files[0]!);
  }

  async run(): Promise<string[]> {
    this.#writeRun();
    this.#watch();
    await this.#start();
    await this.#phase('calm', () => this.#calm());
    await this.#phase('faults', () => this.#strike());
    await this.#phase('healed', () => this.#recover());
    await this.#finish();
    return this.#files;
  }

  async end(): Promise<void> {
    this.#over = true;
    clearInterval(this.#watchdog);
    await this.#observing;
    await this.#observer?.close().catch(() => {});
    for (const seat of this.#seats.values()) seat.end();
  }

  // --- phases -------------------------------------------------------------------------------------------------------

  async #start(): Promise<void> {
    for (const name of this.#names) writeFileSync(join(this.#options.folder, name), '0');
    const { kind, target, lock, traits } = this.#options;
    const count = kind.processes ? WORKERS : 1;
    await Promise.all(Array.from({ length: count }, (_, at) => this.#seat(`w${at + 1}`)));
    if (lock === 'holdfast' && traits.listing && target.observerUrl !== undefined)
      this.#observing = this.#observe(target.observerUrl);
  }

  /** Until enough has happened that a fault can be told from a run that never worked. */
  async #calm(): Promise<void> {
    const end = performance.now() + 60_000;
    const enough = (): boolean => this.#served() >= 60;
    while (!enough() && performance.now() < end) await sleep(20);
  }

  async #strike(): Promise<void> {
    const { nemeses, seconds } = this.#options;
    for (const seat of this.#seats.values()) seat.tell({ tell: 'faults', on: true });
    const end = performance.now() + seconds * 1_000;
    const active = nemeses.flatMap((name) => NEMESES[name]!.strike ?? []);
    const scene = this.#scene();
    while (performance.now() < end) {
      if (active.length > 0) await this.#random.pick(active)(scene);
      await sleep(this.#random.between(0.1, 1) * this.#options.ttlMs);
    }
    for (const seat of this.#seats.values()) seat.tell({ tell: 'faults', on: false });
  }

  /** Until everybody has been served again. */
  async #recover(): Promise<void> {
    const before = new Map([...this.#seats].map(([name, seat]) => [name, seat.served]));
    const end = performance.now() + 15 * this.#options.ttlMs;
    const allServed = (): boolean => [...this.#seats].every(([name, seat]) => seat.served > before.get(name)!);
    while (!allServed() && performance.now() < end) await sleep(20);
    await sleep(2 * this.#options.ttlMs);
  }

  async #finish(): Promise<void> {
    this.#over = true;
    await this.#observing;
    await Promise.all([...this.#seats.values()].map((seat) => this.#close(seat)));
    await this.#observer?.close();
    for (const left of await this.#left()) this.#write({ kind: 'leftover', at: nowMicros(), ...left });
    this.#leaks();
    await this.#readGuarded();
    for (const name of this.#names) {
      const value = Number(readFileSync(join(this.#options.folder, name), 'utf8'));
      this.#write({ kind: 'counter', at: nowMicros(), name, value });
    }
    this.#write({ kind: 'phase', at: nowMicros(), phase: 'over' });
  }

  /** What is there in the end, past the fence. */
  async #readGuarded(): Promise<void> {
    const { guardedUrl } = this.#options.target;
    if (guardedUrl === undefined) return;
    const guarded = guardedBy(guardedUrl);
    for (const name of this.#names) {
      const read = { at: nowMicros(), worker: FINAL, id: `${FINAL}-${name}` };
      const access = { name: `${this.#namespace}/${name}`, token: undefined, shared: false };
      this.#write({ ...read, kind: 'call', what: 'read', name, mode: 'mutex', lease: FINAL });
      const answer = await guarded.read(access);
      if (answer.ok) this.#write({ ...read, kind: 'return', at: nowMicros(), out: 'ok', value: answer.value });
    }
    await guarded.close();
  }

  /**
   * What has been left behind. A machine that was too busy to carry out a goodbye, or that has cost somebody a session at
   * the last moment, leaves what only expires: then it must be gone after that, when somebody else was there.
   */
  async #left(): Promise<readonly Left[]> {
    const left = await this.#look();
    if (left.length === 0 || !this.#starvedAtTheEnd()) return left;
    await sleep(2 * this.#options.ttlMs);
    await this.#visit();
    return this.#look();
  }

  /** What a stranger has added is not ours to remove. */
  async #leftovers(): Promise<string[]> {
    const { target } = this.#options;
    return (await target.leftovers(this.#namespace)).filter((left) => !left.includes(STRANGER));
  }

  /** Looks have deadlines, which a busy machine may miss. */
  async #look(): Promise<readonly Left[]> {
    const claims = await eventually('the lines are listed', () => this.#leftClaims());
    const keys = await eventually('the keys are listed', () => this.#leftovers());
    return [
      ...claims.map((detail) => ({ what: 'claim', detail }) as const),
      ...keys.map((detail) => ({ what: 'key', detail }) as const),
    ];
  }

  async #leftClaims(): Promise<readonly string[]> {
    const { observerUrl } = this.#options.target;
    if (!this.#observer || observerUrl === undefined) return [];
    await using locks = new Holdfast(observerUrl, { namespace: this.#namespace, label: 'observer' });
    const lines: string[] = [];
    for await (const { name, claims } of locks.inspect())
      if (!name.includes(STRANGER)) lines.push(`${claims.length} on ${name}`);
    return lines;
  }

  #starvedAtTheEnd(): boolean {
    const events = readHistory(this.#files);
    const healed = events.find((event) => event.kind === 'phase' && event.phase === 'healed')?.at ?? 0;
    return events.some((event) => event.kind === 'fault' && event.nemesis === STARVED && event.at >= healed);
  }

  /** Whoever comes next buries the dead. */
  async #visit(): Promise<void> {
    const { target, ttlMs } = this.#options;
    const url = target.observerUrl ?? (await target.urlFor('w1'));
    await using locks = new Holdfast(url, { ttl: ttlMs, namespace: this.#namespace, label: 'visitor' });
    for (const name of this.#names) await locks.mutex(name).run(() => sleep(ttlMs / 2));
  }

  /** In histories and in what the workers have printed. */
  #leaks(): void {
    for (const secret of this.#options.target.secrets ?? []) {
      for (const file of readdirSync(this.#options.folder)) {
        if (!readFileSync(join(this.#options.folder, file), 'utf8').includes(secret)) continue;
        this.#write({ kind: 'leftover', at: nowMicros(), what: 'secret', detail: `a password in ${file}` });
      }
    }
  }

  async #close(seat: Seat): Promise<void> {
    const handles = await seat.finish(END_MS);
    const leftover = { kind: 'leftover', at: nowMicros() } as const;
    if (handles === undefined)
      this.#write({ ...leftover, what: 'promise', detail: `${seat.id} did not come to an end` });
    for (const handle of handles ?? []) this.#write({ ...leftover, what: 'handle', detail: `${handle} of ${seat.id}` });
  }

  /** All connections of the workers may go through us: what keeps us from running keeps them from beating. */
  #watch(): void {
    const starvation = new Starvation({
      target: 'link',
      ttlMs: this.#options.ttlMs,
      everyMs: WATCH_MS,
      id: () => this.#faultId(),
      write: (event) => this.#write(event),
    });
    this.#watchdog = setInterval(() => starvation.look(), WATCH_MS);
  }

  // --- workers ------------------------------------------------------------------------------------------------------

  async #seat(name: string): Promise<void> {
    const clock = this.#options.nemeses.includes('client-clock') ? await clockShim() : undefined;
    const seat = new Seat(
      name,
      clock,
      (life) => this.#setup(name, life),
      await this.#options.target.apart?.hostFor(name),
      this.#resource,
      (event) => this.#write(event),
    );
    this.#seats.set(name, seat);
    await seat.start();
  }

  async #setup(name: string, life: number): Promise<WorkerSetup> {
    const { kind, target, lock, ttlMs, seed, folder, nemeses, stalls } = this.#options;
    const worker = `${name}.${life}`;
    const history = join(folder, `${worker}.jsonl`);
    writeFileSync(history, '');
    this.#files.push(history);
    return {
      worker,
      lock,
      url: await target.urlFor(name),
      ...(target.guardedUrl !== undefined && { guardedUrl: target.guardedUrl }),
      ...(nemeses.some((nemesis) => NEMESES[nemesis]!.onLinks) &&
        target.routesFor && { routes: await target.routesFor(name) }),
      peers: this.#options.peers,
      namespace: this.#namespace,
      ttlMs,
      seed: seed * 1_000 + life * 100 + this.#seats.size,
      history,
      folder,
      names: this.#names,
      observes: lock === 'holdfast' && this.#options.traits.listing && target.observerUrl === undefined,
      instances: kind.processes ? 1 : WORKERS,
      lanes: kind.processes ? 3 : 3 * WORKERS,
      stalls: nemeses.includes('stall') ? stalls : 0,
    };
  }

  #served(): number {
    return [...this.#seats.values()].reduce((sum, { served }) => sum + served, 0);
  }

  // --- faults -------------------------------------------------------------------------------------------------------

  #scene(): Scene {
    const { ttlMs, target, traits } = this.#options;
    return {
      random: this.#random,
      ttlMs,
      target,
      traits,
      observer: this.#observer,
      namespace: this.#namespace,
      names: this.#names.filter(isExclusive),
      victims: () => [...this.#seats.values()],
      during: async (nemesis, victim, fault, more) => {
        const id = this.#faultId();
        const event = { kind: 'fault', id, nemesis, target: victim } as const;
        this.#write({ ...event, ...more, at: nowMicros(), what: 'begin' });
        try {
          await fault();
        } finally {
          this.#write({ ...event, at: nowMicros(), what: 'end' });
        }
      },
      instant: (nemesis, victim, more) => {
        const id = this.#faultId();
        const at = nowMicros();
        this.#write({ kind: 'fault', at, id, nemesis, what: 'instant', target: victim, ...more });
      },
    };
  }

  #faultId(): string {
    this.#faults += 1;
    return `f${this.#faults}`;
  }

  // --- history ------------------------------------------------------------------------------------------------------

  async #observe(url: string): Promise<void> {
    this.#observer = new Holdfast(url, { ttl: this.#options.ttlMs, namespace: this.#namespace, label: 'observer' });
    await observe(
      this.#observer,
      (event) => this.#write(event),
      () => this.#over,
      (from, to) => this.#timed(from, to),
    );
  }

  /** A server that is slow to list its lines, because of its disk for one, was as slow to hear of beats meanwhile. */
  #timed(from: number, to: number): void {
    if (!isStarving(to - from, this.#options.ttlMs)) return;
    const fault = { kind: 'fault', id: this.#faultId(), nemesis: STARVED, target: 'server' } as const;
    this.#write({ ...fault, at: from, what: 'begin' });
    this.#write({ ...fault, at: to, what: 'end' });
  }

  async #phase(phase: 'calm' | 'faults' | 'healed', work: () => Promise<void>): Promise<void> {
    this.#write({ kind: 'phase', at: nowMicros(), phase });
    await work();
  }

  #writeRun(): void {
    const { engine, lock, seed, ttlMs, nemeses, target, kind, traits } = this.#options;
    const spared = sparedOf(traits, kind, nemeses);
    this.#write({
      kind: 'run',
      at: nowMicros(),
      engine,
      lock,
      seed,
      ttlMs,
      workers: kind.processes ? WORKERS : 1,
      names: this.#names,
      nemeses,
      judged: PROPERTIES.filter((property) => !spared.has(property)),
      versions: { node: process.version, ...target.versions },
    });
  }

  #write(event: HistoryEvent): void {
    this.#history.write(event);
  }
}

/** A place in the workload: whoever is killed is replaced by another process. */
class Seat implements Victim {
  readonly seat: string;
  readonly clock: ClockShim | undefined;
  readonly #setup: (life: number) => Promise<WorkerSetup>;
  readonly #host: Host | undefined;
  readonly #resource: Resource;
  readonly #write: (event: HistoryEvent) => void;
  #child: ChildProcess | undefined;
  #life = 0;
  #faults = false;
  #closed: ((handles: readonly string[]) => void) | undefined;
  /** How often it has read the register: one for every lock that it took. */
  served = 0;

  constructor(
    seat: string,
    clock: ClockShim | undefined,
    setup: (life: number) => Promise<WorkerSetup>,
    host: Host | undefined,
    resource: Resource,
    write: (event: HistoryEvent) => void,
  ) {
    this.seat = seat;
    this.clock = clock;
    this.#setup = setup;
    this.#host = host;
    this.#resource = resource;
    this.#write = write;
  }

  get id(): string {
    return `${this.seat}.${this.#life}`;
  }

  get pid(): number {
    return this.#child!.pid!;
  }

  async start(): Promise<void> {
    this.#life += 1;
    const setup = await this.#setup(this.#life);
    const log = openSync(join(setup.folder, `${setup.worker}.log`), 'a');
    const [execPath, ...enter] = [...(this.#host?.enter ?? []), process.execPath];
    const child = fork(join(import.meta.dirname, 'worker.ts'), [JSON.stringify(setup)], {
      execPath,
      execArgv: [...enter, '--import', 'tsx'],
      env: { ...process.env, ...this.clock?.env },
      stdio: ['ignore', log, log, 'ipc'],
    });
    closeSync(log);
    this.#child = child;
    await new Promise<void>((resolve, reject) => {
      child.on('message', (message: FromWorker) => {
        if (message.say === 'ready') resolve();
        else this.#heard(child, message);
      });
      child.once('exit', () =>
        reject(new Error(`${setup.worker} ended before it was ready: ${setup.folder}/${setup.worker}.log`)),
      );
    });
    if (this.#faults) this.tell({ tell: 'faults', on: true });
  }

  tell(message: ToWorker): void {
    if (message.tell === 'faults') this.#faults = message.on;
    if (this.#child?.connected) this.#child.send(message);
  }

  async replace(): Promise<void> {
    const child = this.#child!;
    const ended = new Promise((resolve) => child.once('exit', resolve));
    child.kill('SIGKILL');
    await ended;
    this.#write({ kind: 'worker', at: nowMicros(), worker: this.id, what: 'ended' });
    await this.start();
  }

  /** What still kept it alive after it had closed everything; undefined if it did not come to an end. */
  finish(withinMs: number): Promise<readonly string[] | undefined> {
    return new Promise((resolve) => {
      const timer = setTimeout(() => resolve(undefined), withinMs);
      this.#closed = (handles) => {
        clearTimeout(timer);
        resolve(handles);
      };
      this.tell({ tell: 'end' });
    });
  }

  end(): void {
    this.#child?.kill('SIGKILL');
    this.clock?.[Symbol.dispose]();
  }

  #heard(child: ChildProcess, message: Exclude<FromWorker, { say: 'ready' }>): void {
    if (message.say === 'closed') return this.#closed?.(message.handles);
    if (message.say === 'served') {
      this.served += 1;
      return;
    }
    if (message.request.ask === 'read') this.served += 1;
    const response = this.#resource.answer(message.request);
    if (child.connected) child.send({ tell: 'answer', call: message.call, response } satisfies ToWorker);
  }
}
