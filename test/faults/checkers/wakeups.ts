/**
 * No wake-up is lost: a lock that nobody holds and somebody waits for is granted within a ttl and a poll.
 *
 * Faults stop the clock, and so does what they leave behind: sessions of the dead live for one ttl more, and after a
 * server lost its memory nothing is granted until every lease of before has ended.
 */
import { found, type Finding, type Violation, violation } from '../finding.js';
import { type LineEvent, NOBODY } from '../history.js';
import type { Interval } from '../leases.js';
import { isShared, MS, type Run } from '../run.js';
import { groupBy } from './group-by.js';

const POLL = 1_000 * MS;

/** One claim, first in a line that nobody holds, in a row of snapshots. */
interface Streak {
  readonly lease: string;
  readonly first: LineEvent;
  reported: boolean;
}

export function checkWakeups(run: Run): Finding {
  const disturbances = disturbancesOf(run);
  const grants = groupBy(run.leases.values(), ({ name }) => name);
  const returns = new Map(run.calls.map(({ event, returned }) => [event.id, returned?.at ?? Number.POSITIVE_INFINITY]));
  // What is left of an acquire that has returned waits for nothing.
  const waits = (lease: string, at: number): boolean => (returns.get(lease) ?? 0) > at;
  return found(
    run.lines.filter((snapshot) => snapshot.claims.some(({ state }) => state === 'waiting')).length,
    [...groupBy(run.lines, ({ name }) => name)].flatMap(([name, snapshots]) =>
      checkLine({ longest: run.ttl + POLL, snapshots, waits }, [
        ...disturbances,
        ...(grants.get(name) ?? []).map(({ grant: { at } }) => ({ from: at, to: at })),
      ]),
    ),
  );
}

function disturbancesOf(run: Run): readonly Interval[] {
  const felt = run.faults.filter(({ target }) => target !== NOBODY);
  return felt.map((fault) => ({
    from: fault.from,
    to: fault.to + (isShared(run, fault) ? 2 * run.ttl + POLL : run.ttl),
  }));
}

interface Watched {
  readonly longest: number;
  readonly snapshots: readonly LineEvent[];
  readonly waits: (lease: string, at: number) => boolean;
}

function checkLine({ longest, snapshots, waits }: Watched, breaks: readonly Interval[]): readonly Violation[] {
  const violations: Violation[] = [];
  const calm = new Calm(breaks);
  let streak: Streak | undefined;
  for (const snapshot of snapshots) {
    const lease = idleWaiter(snapshot);
    if (lease === undefined || !waits(lease, snapshot.until)) streak = undefined;
    else if (streak?.lease !== lease || !calm.isCalm(streak.first.at, snapshot.until))
      streak = { lease, first: snapshot, reported: false };
    else if (snapshot.at - streak.first.until > longest && !streak.reported) {
      streak.reported = true;
      violations.push(forgotten(streak.first, snapshot, lease));
    }
  }
  return violations;
}

/** Who is first in a line that nobody holds. */
function idleWaiter({ claims }: LineEvent): string | undefined {
  return claims.some(({ state }) => state === 'held') ? undefined : claims[0]?.lease;
}

function forgotten(first: LineEvent, last: LineEvent, lease: string): Violation {
  const seconds = ((last.at - first.until) / 1_000 / MS).toFixed(1);
  return violation('wakeups', first.name, `${lease} waited ${seconds} s for ${first.name} though nobody held it.`, [
    first,
    last,
  ]);
}

/** Asked about intervals whose ends come in order of time. */
class Calm {
  readonly #breaks: readonly Interval[];
  #next = 0;
  /** When the last of the breaks that began so far is over. */
  #until = Number.NEGATIVE_INFINITY;

  constructor(breaks: readonly Interval[]) {
    this.#breaks = breaks.toSorted((a, b) => a.from - b.from);
  }

  isCalm(from: number, to: number): boolean {
    for (let next = this.#breaks[this.#next]; next && next.from <= to; next = this.#breaks[this.#next]) {
      this.#until = Math.max(this.#until, next.to);
      this.#next += 1;
    }
    return this.#until < from;
  }
}
