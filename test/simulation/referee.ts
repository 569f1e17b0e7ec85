import type { Lease, LeaseLostError } from '../../src/index.js';
import { ALL } from '../../src/core/line.js';
import type { SimProcess } from './process.js';
import type { Scheduler } from './scheduler.js';

/** A line as the referee sees it: what fits beside what. */
export interface Line {
  readonly name: string;
  readonly capacity: number;
}

interface Held {
  readonly process: SimProcess;
  readonly lease: Lease;
  readonly weight: number;
  /** Taken by some users only: a signal costs more than the lock. */
  readonly signal: AbortSignal | undefined;
  seenOver: boolean;
}

interface Pending {
  readonly process: SimProcess;
  readonly what: string;
  readonly since: number;
  /** It may take as long as it likes: it has no timeout, and the lock may be busy. */
  readonly waits: boolean;
}

export interface Circumstances {
  readonly trace: boolean;
  /** Where wall clocks are steady, a lease that is not held is over for good; else a beat may clear the doubt. */
  readonly steadyWall: boolean;
  /** The server forgets nothing, and every process's clock runs: validity ends before the server gives anything up. */
  readonly keepsMemory: boolean;
}

interface LineRecord {
  readonly line: Line;
  readonly held: Set<Held>;
  maxWrite: bigint;
  maxAny: bigint;
}

/** Watches what users see, and writes down every broken promise. */
export class Referee {
  readonly violations: string[] = [];
  grants = 0;
  readonly #scheduler: Scheduler;
  readonly #lines = new Map<string, LineRecord>();
  readonly #pending = new Set<Pending>();
  readonly #losses: { process: SimProcess; name: string; signal: AbortSignal }[] = [];
  readonly #trace: boolean;
  readonly #steadyWall: boolean;
  readonly #keepsMemory: boolean;

  constructor(scheduler: Scheduler, { trace, steadyWall, keepsMemory }: Circumstances) {
    this.#scheduler = scheduler;
    this.#trace = trace;
    this.#steadyWall = steadyWall;
    this.#keepsMemory = keepsMemory;
  }

  log(who: string, what: string): void {
    if (this.#trace) console.log(`${this.#scheduler.now.toFixed(1).padStart(9)}  ${who.padEnd(8)} ${what}`);
  }

  violate(what: string): void {
    this.log('REFEREE', what);
    this.violations.push(`at ${this.#scheduler.now.toFixed(1)} ms: ${what}`);
  }

  /** Follows a promise that must settle one day. */
  async track<T>(process: SimProcess, what: string, waits: boolean, promise: Promise<T>): Promise<T> {
    const pending = { process, what, since: this.#scheduler.now, waits };
    this.#pending.add(pending);
    try {
      return await promise;
    } finally {
      this.#pending.delete(pending);
    }
  }

  /** A lease has just been handed to its user. */
  granted(process: SimProcess, line: Line, weight: number, lease: Lease): Held {
    const record = this.#record(line);
    this.grants += 1;
    this.log(process.name, `HOLDS ${line.name} ${weight === ALL ? 'ALL' : weight} token ${lease.token}`);
    if (!lease.held) this.violate(`${process.name} was given ${line.name} though it was over already (${lease.state})`);
    if (line.capacity === ALL) this.#checkToken(process, record, weight, lease.token);
    const held = { process, lease, weight, signal: this.grants % 8 === 0 ? lease.signal : undefined, seenOver: false };
    record.held.add(held);
    return held;
  }

  /** The user lets go: from now on others may hold. */
  letGo(line: Line, held: Held): void {
    this.#record(line).held.delete(held);
    this.log(held.process.name, `lets go of ${line.name} (${held.lease.state})`);
    if (held.lease.state === 'lost') this.#checkLoss(line, held);
  }

  /** Exclusion: at no instant do two that run believe to hold what does not fit. */
  checkExclusion(): void {
    for (const { line, held } of this.#lines.values()) {
      let weight = 0;
      const believers: string[] = [];
      for (const holder of held) {
        if (!this.#believes(holder)) continue;
        weight += holder.weight;
        if (held.size > 1) believers.push(`${holder.process.name} (token ${holder.lease.token})`);
      }
      if (weight > line.capacity) this.violate(`${line.name} is held at once by ${believers.join(' and ')}`);
    }
  }

  /** Nobody who runs may wait for longer than this. */
  checkStarvation(longestMs: number): void {
    for (const { process, what, since } of this.#pending) {
      const waitedMs = this.#scheduler.now - since;
      if (process.running && waitedMs > longestMs)
        this.violate(`${process.name} has waited ${waitedMs.toFixed(0)} ms for ${what}`);
    }
  }

  /** In the end every signal of a lost lease has aborted. */
  checkTold(): void {
    for (const { process, name, signal } of this.#losses)
      if (process.running && !signal.aborted) this.violate(`${process.name} lost ${name} and its signal did not abort`);
  }

  unsettled(): readonly Pending[] {
    return [...this.#pending].filter(({ process }) => process.state !== 'dead');
  }

  /** Every loss is told, and none is invented: an engine that forgets nothing can't have lost what is still valid. */
  #checkLoss({ name }: Line, { process, signal, lease }: Held): void {
    // To look at a lease changes nothing; whoever goes on to run hears of it soon after.
    if (signal) this.#losses.push({ process, name, signal });
    try {
      lease.assertHeld();
    } catch (error) {
      if (this.#keepsMemory && (error as LeaseLostError).reason === 'session') {
        this.violate(`${process.name} was told that it lost ${name}, which the engine still had`);
      }
    }
  }

  #believes(holder: Held): boolean {
    if (!holder.process.running) return false;
    const { lease } = holder;
    if (!lease.held) {
      holder.seenOver = true;
      return false;
    }
    if (holder.seenOver && this.#steadyWall)
      this.violate(`${lease.name} came back to ${holder.process.name} after it was over`);
    holder.seenOver = false;
    return true;
  }

  #checkToken(process: SimProcess, record: LineRecord, weight: number, token: bigint): void {
    const floor = weight === ALL ? record.maxAny : record.maxWrite;
    if (token <= floor) {
      this.violate(`${process.name} got token ${token} for ${record.line.name} after ${floor} had been given`);
    }
    if (token > record.maxAny) record.maxAny = token;
    if (weight === ALL && token > record.maxWrite) record.maxWrite = token;
  }

  #record(line: Line): LineRecord {
    let record = this.#lines.get(line.name);
    if (!record) {
      record = { line, held: new Set(), maxWrite: 0n, maxAny: 0n };
      this.#lines.set(line.name, record);
    }
    return record;
  }
}
