/**
 * What happened in a run, as JSON lines. Every process appends to a file of its own; the runs' reader merges them.
 *
 * Times are microseconds of the system-wide monotonic clock, which all processes of a machine share and no wall-clock
 * fault moves. A call is written before it is made and its return when it came: a call without a return stays unknown.
 */
import { appendFileSync, readFileSync } from 'node:fs';

/** Of the system-wide monotonic clock. */
export function nowMicros(): number {
  return Number(process.hrtime.bigint() / 1_000n);
}

/** The first line of a run. */
export interface RunEvent {
  readonly kind: 'run';
  readonly at: number;
  readonly engine: string;
  /** `holdfast`, or the lock that is tested beside it: `naive`, `redlock`, `redis-semaphore`. */
  readonly lock: string;
  readonly seed: number;
  readonly ttlMs: number;
  readonly workers: number;
  readonly names: readonly string[];
  readonly nemeses: readonly string[];
  /** What the engine's page promises under these nemeses; the others are counted, not judged. */
  readonly judged: readonly Property[];
  readonly versions: Readonly<Record<string, string>>;
}

/** What is judged. */
export const PROPERTIES = [
  'belief',
  'tokens',
  'register',
  'fifo',
  'wakeups',
  'liveness',
  'truth',
  'kept',
  'clean',
  'secrets',
] as const;

export type Property = (typeof PROPERTIES)[number];

export type Mode = 'mutex' | 'reentrant' | 'read' | 'write' | 'semaphore' | 'election';

/** A process of the workload came, or a phase began. */
interface WorkerEvent {
  readonly kind: 'worker';
  readonly at: number;
  readonly worker: string;
  readonly what: 'started' | 'ended';
}

/** Worker `w3`, its second life: `w3.2`. Ids of calls are unique in a run. */
export interface CallEvent {
  readonly kind: 'call';
  readonly at: number;
  readonly worker: string;
  readonly id: string;
  readonly what: 'acquire' | 'release' | 'read' | 'write' | 'count';
  readonly name: string;
  readonly mode: Mode;
  /** Of the acquire that gave the lease; for an acquire its own id. */
  readonly lease: string;
  /** Decimal. */
  readonly token?: string;
  /** Of a write. */
  readonly value?: number;
  /** Of an acquire: how long it is willing to wait, when it will be aborted. */
  readonly timeoutMs?: number;
  readonly abortMs?: number;
  readonly weight?: number;
  readonly capacity?: number;
}

export interface ReturnEvent {
  readonly kind: 'return';
  readonly at: number;
  readonly worker: string;
  readonly id: string;
  /**
   * `ok`; `busy`: not granted in time, or the try was refused; `aborted`; `stale`: refused by the fence; `lost`: the lease
   * was gone (a release that says so); `error`: it is not known whether it happened.
   */
  readonly out: 'ok' | 'busy' | 'aborted' | 'stale' | 'lost' | 'error';
  /** Of an acquire. Decimal. */
  readonly token?: string;
  /** Of a read. */
  readonly value?: number;
  /** Code and message. */
  readonly error?: string;
}

/** The worker asked `lease.held`: the answer was true of some instant between `at` and `until`. */
export interface HeldEvent {
  readonly kind: 'held';
  readonly at: number;
  readonly until: number;
  readonly worker: string;
  readonly lease: string;
  readonly held: boolean;
}

/** The lease's signal aborted. */
export interface LostEvent {
  readonly kind: 'lost';
  readonly at: number;
  readonly worker: string;
  readonly lease: string;
  readonly reason: string;
}

/** What `inspect` showed of one line, somewhere between `at` and `until`. Claims in line order, by the lease they are for. */
export interface LineEvent {
  readonly kind: 'line';
  readonly at: number;
  readonly until: number;
  readonly name: string;
  readonly claims: readonly { readonly lease: string; readonly state: 'held' | 'waiting' }[];
}

/** The nemesis did something. Without `until` it is over at once; faults with the same `id` begin and end apart. */
export interface FaultEvent {
  readonly kind: 'fault';
  readonly at: number;
  readonly id: string;
  readonly nemesis: string;
  readonly what: 'begin' | 'end' | 'instant';
  /** The worker it was done to, or `server`, `link`, or `NOBODY`. */
  readonly target: string;
  readonly detail?: string;
  /** It may be felt, but by the engine's page it costs nobody a lease. */
  readonly harmless?: true;
  /** The one name whose leases it may cost. Default: all of them. */
  readonly only?: string;
  /** The workers that go on with a server that was cut off and replaced: what it grants them, nobody else knows. */
  readonly isolated?: readonly string[];
}

/** Done beside us: it must be felt by nobody, so it explains nothing. */
export const NOBODY = 'nobody';

/** Nobody's doing: the machine was too busy to let a process run. It explains a loss, and counts as no strike. */
export const STARVED = 'starved';

/** The faults begin, all are healed, everybody has been told to end, what was left behind. */
export interface PhaseEvent {
  readonly kind: 'phase';
  readonly at: number;
  readonly phase: 'calm' | 'faults' | 'healed' | 'over';
}

/** Found after everything was closed. */
export interface LeftoverEvent {
  readonly kind: 'leftover';
  readonly at: number;
  readonly what: 'key' | 'claim' | 'handle' | 'promise' | 'secret';
  readonly detail: string;
}

/** The unfenced counter of a name at the end: what is in the file. */
export interface CounterEvent {
  readonly kind: 'counter';
  readonly at: number;
  readonly name: string;
  readonly value: number;
}

/** Who reads what the locks protected when everybody has gone. */
export const FINAL = 'final';

export type HistoryEvent =
  | RunEvent
  | WorkerEvent
  | CallEvent
  | ReturnEvent
  | HeldEvent
  | LostEvent
  | LineEvent
  | FaultEvent
  | PhaseEvent
  | LeftoverEvent
  | CounterEvent;

/** Appends synchronously: what a process did before it was killed or stopped is in the file. */
export class HistoryWriter {
  readonly #path: string;

  constructor(path: string) {
    this.#path = path;
  }

  write(event: HistoryEvent): void {
    appendFileSync(this.#path, `${JSON.stringify(event)}\n`);
  }
}

/** The events of several files, in order of time. A line that a killed process did not finish is left out. */
export function readHistory(paths: readonly string[]): HistoryEvent[] {
  return paths
    .flatMap((path) => readFileSync(path, 'utf8').split('\n'))
    .flatMap((line) => parse(line))
    .sort((a, b) => a.at - b.at);
}

function parse(line: string): HistoryEvent[] {
  try {
    return line === '' ? [] : [JSON.parse(line) as HistoryEvent];
  } catch {
    return [];
  }
}
