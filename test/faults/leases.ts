/** The leases of a run: who was granted what, when they believed in it, and how it ended. */
import { ALL } from '../../src/core/line.js';
import type { CallEvent, HeldEvent, HistoryEvent, LostEvent, Mode, ReturnEvent } from './history.js';
import type { Call, Life } from './run.js';

export interface Interval {
  readonly from: number;
  readonly to: number;
}

/** An acquire that was granted. Its id is the call's. */
export interface Lease {
  readonly id: string;
  readonly worker: string;
  readonly name: string;
  readonly mode: Mode;
  readonly weight: number;
  readonly capacity: number;
  /** The locks of others may give none. */
  readonly token: bigint | undefined;
  /** The same for leases that are one hold: those of a re-entrant lock share the outer one's token. */
  readonly hold: string;
  readonly call: CallEvent;
  readonly grant: ReturnEvent;
  /** In order of time. */
  readonly checks: readonly HeldEvent[];
  readonly lost: LostEvent | undefined;
  readonly release: Call | undefined;
  /**
   * For sure it believed all the time from an answer to a later question, if no answer in between was no. That includes a
   * stall: who is told afterwards that it still holds was promised that nobody else did meanwhile.
   */
  readonly beliefs: readonly Interval[];
  /** When it stopped acting as a holder: told that it is over, about to release, or dead. */
  readonly over: number;
}

function weightOf({ mode, weight, capacity }: Pick<CallEvent, 'mode' | 'weight' | 'capacity'>): {
  readonly weight: number;
  readonly capacity: number;
} {
  if (mode === 'semaphore') return { weight: weight ?? 1, capacity: capacity ?? 1 };
  return { weight: mode === 'read' ? 1 : ALL, capacity: ALL };
}

export function mayCoexist(a: Lease, b: Lease): boolean {
  return a.hold === b.hold || a.weight + b.weight <= Math.min(a.capacity, b.capacity);
}

export function leasesOf(
  events: readonly HistoryEvent[],
  calls: readonly Call[],
  lives: ReadonlyMap<string, Life>,
): ReadonlyMap<string, Lease> {
  const checks = new Map<string, HeldEvent[]>();
  const losses = new Map<string, LostEvent>();
  for (const event of events) {
    if (event.kind === 'held') push(checks, event);
    else if (event.kind === 'lost' && !losses.has(event.lease)) losses.set(event.lease, event);
  }
  const releases = new Map(
    calls.filter(({ event }) => event.what === 'release').map((call) => [call.event.lease, call]),
  );
  const leases = new Map<string, Lease>();
  for (const { event: call, returned: grant } of calls) {
    if (call.what !== 'acquire' || grant?.out !== 'ok') continue;
    const { id, worker } = call;
    const asked = checks.get(id) ?? [];
    const [lost, release] = [losses.get(id), releases.get(id)];
    leases.set(id, {
      ...identity(call, grant),
      checks: asked,
      lost,
      release,
      beliefs: beliefs(asked),
      over: Math.min(
        asked.find(({ held }) => !held)?.until ?? Number.POSITIVE_INFINITY,
        lost?.at ?? Number.POSITIVE_INFINITY,
        release?.event.at ?? Number.POSITIVE_INFINITY,
        lives.get(worker)?.to ?? Number.POSITIVE_INFINITY,
      ),
    });
  }
  return leases;
}

function identity(call: CallEvent, grant: ReturnEvent) {
  const { id, worker, name, mode } = call;
  const token = grant.token === undefined ? undefined : BigInt(grant.token);
  const hold = mode === 'reentrant' && token !== undefined ? `${worker} ${token}` : id;
  return { id, worker, name, mode, ...weightOf(call), token, hold, call, grant };
}

function push(checks: Map<string, HeldEvent[]>, event: HeldEvent): void {
  const known = checks.get(event.lease);
  if (known) known.push(event);
  else checks.set(event.lease, [event]);
}

/** What `held` says after the release began is no loss. */
export function firstNo({ checks, release }: Lease): HeldEvent | undefined {
  const end = release?.event.at ?? Number.POSITIVE_INFINITY;
  return checks.find(({ held, until }) => !held && until <= end);
}

/** Each unbroken row of yes, from when the first answer was there to when the last question was asked. */
function beliefs(checks: readonly HeldEvent[]): readonly Interval[] {
  const found: Interval[] = [];
  let from: number | undefined;
  let to = 0;
  const close = (): void => {
    if (from !== undefined && from < to) found.push({ from, to });
    from = undefined;
  };
  for (const { held, at, until } of checks) {
    if (!held) close();
    else {
      from ??= until;
      to = at;
    }
  }
  close();
  return found;
}
