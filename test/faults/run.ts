/** A run's history, sorted out once: calls with their returns, faults with their ends, lives of workers, phases. */
import {
  type CallEvent,
  type CounterEvent,
  type FaultEvent,
  type HistoryEvent,
  type LeftoverEvent,
  type LineEvent,
  type PhaseEvent,
  type ReturnEvent,
  type RunEvent,
  NOBODY,
} from './history.js';
import { type Lease, leasesOf } from './leases.js';

export interface Call {
  readonly event: CallEvent;
  /** Absent: it is not known what came of it. */
  readonly returned: ReturnEvent | undefined;
}

export interface Fault {
  readonly nemesis: string;
  readonly target: string;
  readonly from: number;
  /** Infinite if its end was not written. */
  readonly to: number;
  readonly begin: FaultEvent;
}

export interface Life {
  readonly from: number;
  /** Infinite if it was not seen to end. */
  readonly to: number;
}

export interface Run {
  readonly info: RunEvent;
  readonly ttl: number;
  readonly start: number;
  readonly end: number;
  readonly calls: readonly Call[];
  readonly leases: ReadonlyMap<string, Lease>;
  readonly lines: readonly LineEvent[];
  readonly faults: readonly Fault[];
  readonly lives: ReadonlyMap<string, Life>;
  readonly phases: ReadonlyMap<PhaseEvent['phase'], number>;
  readonly counters: readonly CounterEvent[];
  readonly leftovers: readonly LeftoverEvent[];
}

export const MS = 1_000;

/** Throws if it is no history of a run: without its first line nothing says how to judge it. */
export function runOf(history: readonly HistoryEvent[]): Run {
  const events = history.toSorted((a, b) => a.at - b.at);
  const info = ofKind(events, 'run')[0];
  if (!info) throw new Error('The history does not say what was run: its `run` event is missing.');
  const calls = pair(events);
  const lives = livesOf(events);
  return {
    info,
    ttl: info.ttlMs * MS,
    start: info.at,
    end: events.reduce((last, { at }) => Math.max(last, at), info.at),
    calls,
    leases: leasesOf(events, calls, lives),
    lines: ofKind(events, 'line'),
    faults: faultsOf(events, lives),
    lives,
    phases: new Map(ofKind(events, 'phase').map(({ phase, at }) => [phase, at])),
    counters: ofKind(events, 'counter'),
    leftovers: ofKind(events, 'leftover'),
  };
}

/** Whether it was done to this worker, or to what all of them need: a target that is no worker is everybody's. */
function touches(run: Run, fault: Fault, worker: string): boolean {
  return fault.target === worker || isShared(run, fault);
}

export function isShared(run: Run, { target }: Fault): boolean {
  return target !== NOBODY && !run.lives.has(target);
}

/** Faults that overlap the interval and could be felt by this worker. */
export function faultsOn(run: Run, worker: string, from: number, to: number): readonly Fault[] {
  return run.faults.filter((fault) => fault.from <= to && fault.to >= from && touches(run, fault, worker));
}

function ofKind<K extends HistoryEvent['kind']>(
  events: readonly HistoryEvent[],
  kind: K,
): readonly Extract<HistoryEvent, { kind: K }>[] {
  return events.filter((event): event is Extract<HistoryEvent, { kind: K }> => event.kind === kind);
}

function pair(events: readonly HistoryEvent[]): readonly Call[] {
  const returns = new Map(ofKind(events, 'return').map((event) => [event.id, event]));
  return ofKind(events, 'call').map((event) => ({ event, returned: returns.get(event.id) }));
}

/** Who is killed while it stalls can't write the stall's end: nothing that is done to a worker outlives it. */
function faultsOf(events: readonly HistoryEvent[], lives: ReadonlyMap<string, Life>): readonly Fault[] {
  const written = ofKind(events, 'fault');
  const ends = new Map(written.filter(({ what }) => what === 'end').map(({ id, at }) => [id, at]));
  return written
    .filter(({ what }) => what !== 'end')
    .map((begin) => ({
      nemesis: begin.nemesis,
      target: begin.target,
      from: begin.at,
      to:
        begin.what === 'instant'
          ? begin.at
          : (ends.get(begin.id) ?? lives.get(begin.target)?.to ?? Number.POSITIVE_INFINITY),
      begin,
    }));
}

function livesOf(events: readonly HistoryEvent[]): ReadonlyMap<string, Life> {
  const lives = new Map<string, Life>();
  for (const { worker, what, at } of ofKind(events, 'worker')) {
    const life = lives.get(worker);
    if (what === 'started') lives.set(worker, { from: at, to: life?.to ?? Number.POSITIVE_INFINITY });
    else lives.set(worker, { from: life?.from ?? at, to: at });
  }
  return lives;
}
