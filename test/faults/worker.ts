/**
 * One process of the workload: a few loops, each of which again and again takes a lock, reads the fenced register,
 * thinks, checks `held`, writes the register and an unfenced counter in a file, and releases. Everything is written into
 * the history before it is done and after.
 *
 * With stalls, a holder sometimes blocks its event loop for twice the ttl, half of the times between its last check of
 * `held` and the write: no lock can help then, only the fence.
 */
import { readFileSync, renameSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { Holdfast } from 'holdfast';
import { waitFor } from '../servers/wait.js';
import { Random } from '../simulation/random.js';
import {
  type CallEvent,
  type HistoryEvent,
  HistoryWriter,
  type Mode,
  nowMicros,
  type ReturnEvent,
  STARVED,
} from './history.js';
import { type Access, type Guarded, guardedBy } from './guards.js';
import { observe } from './observer.js';
import type { Request, Response } from './resource.js';
import { routeThrough } from '../servers/routes.js';
import { isStarving, Starvation } from './starvation.js';
import { HoldfastLocks, type HeldLock, NaiveLocks, type TestLocks, type Want } from './worker-locks.js';
import { peerLocks } from './worker-peers.js';
import { type FromWorker, modeOf, PERMITS, type ToWorker, type WorkerSetup } from './worker-setup.js';

const THINK_MS = 8;
const SAMPLE_MS = 25;
/** How many of the holds, while faults are on. */
const LONG_HOLDS = 0.02;
/** What the lock opened must be gone. A socket whose peer can't hear it takes its time; ioredis gives it two seconds. */
const HANDLES_CLOSE_MS = 15_000;
const SLEEP = new Int32Array(new SharedArrayBuffer(4));

class Worker {
  readonly #setup: WorkerSetup;
  readonly #history: HistoryWriter;
  readonly #instances: readonly TestLocks[];
  readonly #random: Random;
  readonly #believed = new Map<string, HeldLock>();
  readonly #asked = new Map<number, (response: Response) => void>();
  #ids = 0;
  readonly #starvation: Starvation;
  readonly #guarded: Guarded | undefined;
  #faults = false;
  #ending = false;

  constructor(setup: WorkerSetup) {
    this.#setup = setup;
    this.#history = new HistoryWriter(setup.history);
    this.#random = new Random(setup.seed);
    this.#starvation = new Starvation({
      target: setup.worker,
      ttlMs: setup.ttlMs,
      everyMs: SAMPLE_MS,
      id: () => this.#id(),
      write: (event) => this.#write(event),
    });
    this.#guarded = setup.guardedUrl === undefined ? undefined : guardedBy(setup.guardedUrl);
    this.#instances = Array.from({ length: setup.instances }, () => this.#makeLocks());
  }

  async live(): Promise<void> {
    process.on('message', (message: ToWorker) => this.#told(message));
    this.#write({ kind: 'worker', at: nowMicros(), worker: this.#setup.worker, what: 'started' });
    this.#say({ say: 'ready' });
    const sampler = setInterval(() => this.#sample(), SAMPLE_MS);
    await Promise.all([
      ...Array.from({ length: this.#setup.lanes }, (_, lane) => this.#loop(this.#instance(lane))),
      this.#observe(),
    ]);
    clearInterval(sampler);
    await this.#goodbye();
    await this.#guarded?.close();
    this.#write({ kind: 'worker', at: nowMicros(), worker: this.#setup.worker, what: 'ended' });
    await waitFor(() => openHandles().length === 0, HANDLES_CLOSE_MS);
    this.#say({ say: 'closed', handles: openHandles() });
    process.disconnect();
  }

  /** It has a deadline, like every call: one that took as long may not have been heard, and what it was about expires. */
  async #goodbye(): Promise<void> {
    const begun = nowMicros();
    await Promise.all(this.#instances.map((locks) => locks.close()));
    const ended = nowMicros();
    if (!isStarving(ended - begun, this.#setup.ttlMs)) return;
    const fault = { kind: 'fault', id: this.#id(), nemesis: STARVED, target: this.#setup.worker } as const;
    this.#write({ ...fault, at: begun, what: 'begin' });
    this.#write({ ...fault, at: ended, what: 'end' });
  }

  #makeLocks(): TestLocks {
    const { lock } = this.#setup;
    if (lock === 'holdfast') return new HoldfastLocks(this.#setup);
    if (lock === 'naive') return new NaiveLocks(this.#setup, (request) => this.#ask(request));
    return peerLocks(this.#setup);
  }

  /** One more instance, which takes no locks. */
  async #observe(): Promise<void> {
    if (!this.#setup.observes) return;
    await using locks = new Holdfast(this.#setup.url, { namespace: this.#setup.namespace, label: 'observer' });
    await observe(
      locks,
      (event) => this.#write(event),
      () => this.#ending,
    );
  }

  #instance(at: number): TestLocks {
    return this.#instances[at % this.#instances.length]!;
  }

  async #loop(locks: TestLocks): Promise<void> {
    while (!this.#ending) {
      const name = this.#random.pick(this.#setup.names);
      await this.#turn(locks, name).catch(() => {
        // It is in the history. The engine may be unreachable: no hot loop.
      });
      await sleep(this.#random.between(0, 10));
    }
  }

  async #turn(locks: TestLocks, name: string): Promise<void> {
    const mode = this.#modeFor(name);
    const id = this.#id();
    if (mode === 'reentrant' && locks instanceof HoldfastLocks) return this.#reentrantTurn(locks, name, id);
    const want = this.#want(name, mode, id);
    const call = this.#called(
      {
        what: 'acquire',
        name,
        mode,
        lease: id,
        ...(want.timeoutMs !== undefined && { timeoutMs: want.timeoutMs }),
        ...(mode === 'semaphore' && { weight: want.permits, capacity: PERMITS }),
      },
      id,
    );
    const lock = await this.#outcome(
      call,
      () => locks.acquire(want),
      (granted) => (granted ? { out: 'ok', ...tokenOf(granted) } : { out: 'busy' }),
    );
    if (!lock) return sleep(this.#random.between(1, 20));
    await this.#hold(name, mode, id, lock);
  }

  /** The outer run stands in line, the inner lease does the work. */
  #reentrantTurn(locks: HoldfastLocks, name: string, id: string): Promise<void> {
    const call = this.#called({ what: 'acquire', name, mode: 'reentrant', lease: id }, id);
    let granted = false;
    return locks
      .reentrant(name, id, async (lock) => {
        granted = true;
        this.#returned(call, { out: 'ok', ...tokenOf(lock) });
        await this.#hold(name, 'reentrant', id, lock);
      })
      .catch((error: unknown) => {
        if (!granted) this.#returned(call, failed(error));
      });
  }

  async #hold(name: string, mode: Mode, lease: string, lock: HeldLock): Promise<void> {
    this.#believed.set(lease, lock);
    lock.onLost((reason) => {
      this.#write({ kind: 'lost', at: nowMicros(), worker: this.#setup.worker, lease, reason });
    });
    try {
      if (this.#checkHeld(lease, lock)) {
        if (this.#faults && this.#random.chance(LONG_HOLDS)) await this.#linger(lock);
        await this.#work(name, mode, lease, lock);
      }
    } finally {
      this.#checkHeld(lease, lock);
      this.#believed.delete(lease);
      const call = this.#called({ what: 'release', name, mode, lease, ...tokenOf(lock) });
      await this.#outcome(
        call,
        () => lock.release(),
        (kept) => ({ out: kept ? 'ok' : 'lost' }),
      );
    }
  }

  /** Holds for longer than a lease lasts without beats, so that faults come while it is held, and can end it. */
  async #linger(lock: HeldLock): Promise<void> {
    const until = performance.now() + this.#random.between(0.5, 3) * this.#setup.ttlMs;
    while (lock.held && performance.now() < until) await sleep(SAMPLE_MS);
  }

  async #work(name: string, mode: Mode, lease: string, lock: HeldLock): Promise<void> {
    if (mode === 'semaphore') return sleep(this.#random.between(0, THINK_MS));
    const common = { name, mode, lease, ...tokenOf(lock) };
    const read = this.#called({ what: 'read', ...common });
    const seen = await this.#outcome(
      read,
      () => this.#read(name, common.token, mode === 'read'),
      (response) => (response.ok ? { out: 'ok', value: response.value } : { out: 'stale' }),
    );
    if (!seen?.ok || mode === 'read') return;
    const counter = join(this.#setup.folder, name);
    const counted = Number(readFileSync(counter, 'utf8'));
    await sleep(this.#random.between(0, THINK_MS));
    const stall = this.#faults && this.#random.chance(this.#setup.stalls);
    const beforeCheck = this.#random.chance(0.5);
    if (stall && beforeCheck) this.#stall();
    if (!this.#checkHeld(lease, lock)) return;
    if (stall && !beforeCheck) this.#stall();
    // Unfenced: the plain file does not know better.
    const count = this.#called({ what: 'count', ...common });
    // In one step: half of a write is not what is counted here.
    writeFileSync(`${counter}.${lease}`, `${counted + 1}`);
    renameSync(`${counter}.${lease}`, counter);
    this.#returned(count, { out: 'ok' });
    const write = this.#called({ what: 'write', ...common, value: seen.value + 1 });
    await this.#outcome(
      write,
      () => this.#writeTo(name, common.token, seen.value + 1),
      (response) => ({ out: response.ok ? 'ok' : 'stale' }),
    );
  }

  #read(name: string, token: string | undefined, shared: boolean): Promise<Response> {
    if (!this.#guarded) return this.#ask({ ask: 'read', name, token, shared });
    this.#say({ say: 'served' });
    return this.#guarded.read(this.#access(name, token, shared));
  }

  #writeTo(name: string, token: string | undefined, value: number): Promise<Response> {
    if (!this.#guarded) return this.#ask({ ask: 'write', name, token, value });
    return this.#guarded.write(this.#access(name, token, false), value);
  }

  /** The control shows no token: then nothing stands between a stalled holder and what it overwrites. */
  #access(name: string, token: string | undefined, shared: boolean): Access {
    const { lock, namespace } = this.#setup;
    const shown = lock === 'holdfast' && token !== undefined ? BigInt(token) : undefined;
    return { name: `${namespace}/${name}`, token: shown, shared };
  }

  #stall(): void {
    const id = this.#id();
    const fault = { kind: 'fault', id, nemesis: 'stall', target: this.#setup.worker } as const;
    this.#write({ ...fault, at: nowMicros(), what: 'begin' });
    Atomics.wait(SLEEP, 0, 0, 2 * this.#setup.ttlMs);
    this.#starvation.forgive();
    this.#write({ ...fault, at: nowMicros(), what: 'end' });
  }

  #checkHeld(lease: string, lock: HeldLock): boolean {
    const at = nowMicros();
    const held = lock.held;
    this.#write({ kind: 'held', at, until: nowMicros(), worker: this.#setup.worker, lease, held });
    return held;
  }

  #sample(): void {
    this.#starvation.look();
    for (const [lease, lock] of this.#believed) this.#checkHeld(lease, lock);
  }

  /** Hundreds who come, and go before they are served. */
  async #crowd(waiters: number): Promise<void> {
    const name = this.#setup.names[0]!;
    await Promise.all(
      Array.from({ length: waiters }, async () => {
        const id = this.#id();
        const abortMs = Math.ceil(this.#random.between(1, this.#setup.ttlMs / 2));
        const want = { ...this.#want(name, modeOf(name), id), signal: AbortSignal.timeout(abortMs) };
        const call = this.#called({ what: 'acquire', name, mode: want.mode, lease: id, abortMs }, id);
        const lock = await this.#outcome(
          call,
          () => this.#instance(0).acquire(want),
          (granted) => (granted ? { out: 'ok', ...tokenOf(granted) } : { out: 'busy' }),
        ).catch(() => undefined);
        // What fails is in the history.
        if (lock) await this.#hold(name, want.mode, id, lock).catch(() => {});
      }),
    );
  }

  #want(name: string, mode: Mode, label: string): Want {
    const dice = this.#random.next();
    const patience = dice < 0.05 ? 0 : dice < 0.25 ? this.#random.between(50, 2 * this.#setup.ttlMs) : undefined;
    const abort = dice > 0.95 ? AbortSignal.timeout(Math.ceil(this.#random.between(1, this.#setup.ttlMs))) : undefined;
    return {
      name,
      mode,
      label,
      timeoutMs: patience === undefined ? undefined : Math.ceil(patience),
      signal: abort,
      permits: 1 + this.#random.int(PERMITS),
    };
  }

  #modeFor(name: string): Mode {
    const mode = modeOf(name);
    return mode === 'write' && this.#random.chance(0.7) ? 'read' : mode;
  }

  // --- history ----------------------------------------------------------------------------------------------------

  #called(what: Omit<CallEvent, 'kind' | 'at' | 'worker' | 'id'>, id = this.#id()): CallEvent {
    const call: CallEvent = { kind: 'call', at: nowMicros(), worker: this.#setup.worker, id, ...what };
    this.#write(call);
    return call;
  }

  #returned({ id, worker }: CallEvent, what: Omit<ReturnEvent, 'kind' | 'at' | 'worker' | 'id'>): void {
    this.#write({ kind: 'return', at: nowMicros(), worker, id, ...what });
  }

  async #outcome<T>(
    call: CallEvent,
    work: () => Promise<T>,
    tell: (value: T) => Omit<ReturnEvent, 'kind' | 'at' | 'worker' | 'id'>,
  ): Promise<T> {
    try {
      const value = await work();
      this.#returned(call, tell(value));
      return value;
    } catch (error) {
      this.#returned(call, failed(error));
      throw error;
    }
  }

  #write(event: HistoryEvent): void {
    this.#history.write(event);
  }

  #id(): string {
    this.#ids += 1;
    return `${this.#setup.worker}-${this.#ids}`;
  }

  // --- the coordinator --------------------------------------------------------------------------------------------

  #told(message: ToWorker): void {
    switch (message.tell) {
      case 'faults':
        this.#faults = message.on;
        break;
      case 'crowd':
        void this.#crowd(message.waiters);
        break;
      case 'end':
        this.#ending = true;
        break;
      case 'answer':
        this.#asked.get(message.call)?.(message.response);
        this.#asked.delete(message.call);
        break;
    }
  }

  #ask(request: Request): Promise<Response> {
    this.#ids += 1;
    const call = this.#ids;
    return new Promise((resolve) => {
      this.#asked.set(call, resolve);
      this.#say({ say: 'ask', call, request });
    });
  }

  #say(message: FromWorker): void {
    process.send!(message);
  }
}

function tokenOf({ token }: HeldLock): { readonly token?: string } {
  return token === undefined ? {} : { token: `${token}` };
}

function failed(error: unknown): Omit<ReturnEvent, 'kind' | 'at' | 'worker' | 'id'> {
  const { code = '', name, message } = error as Error & { code?: string };
  return { out: name === 'TimeoutError' || name === 'AbortError' ? 'aborted' : 'error', error: `${code} ${message}` };
}

/** Sockets and threads; the channel to the coordinator is neither. */
function openHandles(): string[] {
  return process.getActiveResourcesInfo().filter((kind) => /TCP|MessagePort/.test(kind));
}

const given = JSON.parse(process.argv[2]!) as WorkerSetup;
if (given.routes) routeThrough(given.routes);
await new Worker(given).live();
