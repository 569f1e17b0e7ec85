/** What a run did, in numbers. */
import { countLostUpdates } from './checkers/counter.js';
import { lostBy } from './checkers/kept.js';
import { acquiredBeforeFaults, hitsOf } from './checkers/validity.js';
import type { CallEvent, ReturnEvent } from './history.js';
import { type Call, MS, type Run } from './run.js';

export interface Figures {
  readonly seconds: number;
  /** Processes, with those that replaced the killed. */
  readonly lives: number;
  readonly acquires: number;
  readonly granted: number;
  readonly busy: number;
  readonly aborted: number;
  /** Acquires that failed, or never returned. */
  readonly unknown: number;
  readonly grantedBeforeFaults: number;
  /** From the call to its return, of those that were granted. */
  readonly waitMs: { readonly median: number; readonly p99: number; readonly max: number };
  /** Leases that ended before their release, by the faults that were near. */
  readonly lostBy: Readonly<Record<string, number>>;
  readonly register: { readonly ok: number; readonly refused: number; readonly unknown: number };
  readonly counter: { readonly acknowledged: number; readonly lost: number };
  readonly faults: Readonly<Record<string, number>>;
  readonly faultsWhileHeld: number;
  readonly faultsOnHolder: number;
  readonly snapshots: number;
}

export function figuresOf(run: Run): Figures {
  const acquires = run.calls.filter(({ event }) => event.what === 'acquire');
  const register = run.calls.filter(({ event }) => event.what === 'read' || event.what === 'write');
  const [granted, busy, aborted] = [count(acquires, 'ok'), count(acquires, 'busy'), count(acquires, 'aborted')];
  const [ok, refused] = [count(register, 'ok'), count(register, 'stale')];
  const hits = hitsOf(run);
  return {
    seconds: (run.end - run.start) / 1_000 / MS,
    lives: run.lives.size,
    acquires: acquires.length,
    granted,
    busy,
    aborted,
    unknown: acquires.length - granted - busy - aborted,
    grantedBeforeFaults: acquiredBeforeFaults(run),
    waitMs: waits(run),
    lostBy: lostBy(run),
    register: { ok, refused, unknown: register.length - ok - refused },
    counter: countLostUpdates(run),
    faults: faultsByNemesis(run),
    faultsWhileHeld: hits.whileHeld,
    faultsOnHolder: hits.onHolder,
    snapshots: run.lines.length,
  };
}

function count(calls: readonly Call[], out: ReturnEvent['out']): number {
  return calls.filter(({ returned }) => returned?.out === out).length;
}

function waits(run: Run): Figures['waitMs'] {
  const all = [...run.leases.values()].map(({ call, grant }) => msBetween(call, grant)).sort((a, b) => a - b);
  const at = (share: number): number => all[Math.min(all.length - 1, Math.floor(all.length * share))] ?? 0;
  return { median: at(0.5), p99: at(0.99), max: at(1) };
}

function msBetween(call: CallEvent, { at }: ReturnEvent): number {
  return (at - call.at) / MS;
}

function faultsByNemesis(run: Run): Readonly<Record<string, number>> {
  const counts: Record<string, number> = {};
  for (const { nemesis } of run.faults) counts[nemesis] = (counts[nemesis] ?? 0) + 1;
  return counts;
}
