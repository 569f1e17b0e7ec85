/**
 * First come, first served: of two whose claims were seen waiting, the one in front is granted first.
 *
 * A claim may lose its place by right: its session was lost and it came again, at the back, for the same acquire. So only
 * claims count that were seen in their place in every snapshot since, and whose worker no fault has touched meanwhile.
 */
import { found, type Finding, type Violation, violation } from '../finding.js';
import type { HistoryEvent, LineEvent } from '../history.js';
import { mayCoexist } from '../leases.js';
import { type Call, faultsOn, type Run } from '../run.js';
import { groupBy } from './group-by.js';

/** Whoever overtakes one overtakes those right before him, too: to compare with a few is enough, in lines of hundreds. */
const NEIGHBOURS = 16;

/** What the snapshots of a line say of one acquire. */
interface Waiter {
  readonly lastWaiting: LineEvent;
  /** Before this snapshot, it may have lost its place and come again. */
  readonly stableSince: LineEvent;
}

export function checkFifo(run: Run): Finding {
  const acquires = new Map(
    run.calls.filter(({ event }) => event.what === 'acquire').map((call) => [call.event.id, call]),
  );
  const lines = groupBy(run.lines, ({ name }) => name);
  const checks = [...lines.values()].map((snapshots) => new LineCheck(run, acquires, snapshots));
  const violations = checks.flatMap((check) => check.check());
  return found(
    checks.reduce((pairs, check) => pairs + check.pairs, 0),
    violations,
  );
}

class LineCheck {
  readonly #run: Run;
  readonly #acquires: ReadonlyMap<string, Call>;
  readonly #snapshots: readonly LineEvent[];
  readonly #waiters = new Map<string, Waiter>();
  readonly #compared = new Set<string>();
  readonly #violations: Violation[] = [];
  /** That could be judged. */
  pairs = 0;

  constructor(run: Run, acquires: ReadonlyMap<string, Call>, snapshots: readonly LineEvent[]) {
    this.#run = run;
    this.#acquires = acquires;
    this.#snapshots = snapshots;
  }

  check(): readonly Violation[] {
    let before: LineEvent | undefined;
    for (const snapshot of this.#snapshots) {
      this.#follow(snapshot, before);
      before = snapshot;
    }
    for (const snapshot of this.#snapshots) this.#compare(snapshot);
    return this.#violations;
  }

  /**
   * Whoever was not there in the snapshot before, or has fallen behind another who waits, stands there since this one
   * only. To stand behind a holder is no such sign: so does he who was overtaken.
   */
  #follow(snapshot: LineEvent, before: LineEvent | undefined): void {
    const places = new Map(before?.claims.map(({ lease }, place) => [lease, place]));
    let last = -1;
    for (const { lease } of snapshot.claims.filter(({ state }) => state === 'waiting')) {
      const place = places.get(lease) ?? -1;
      const known = this.#waiters.get(lease);
      const stableSince = known && place >= last && place >= 0 ? known.stableSince : snapshot;
      this.#waiters.set(lease, { lastWaiting: snapshot, stableSince });
      last = Math.max(last, place);
    }
  }

  #compare(snapshot: LineEvent): void {
    const waiting = snapshot.claims.filter(({ state }) => state === 'waiting');
    for (const [place, { lease: behind }] of waiting.entries()) {
      for (const { lease: front } of waiting.slice(Math.max(0, place - NEIGHBOURS), place)) {
        const pair = `${front} ${behind}`;
        if (this.#compared.has(pair) || !this.#keptItsPlace(front, snapshot)) continue;
        this.#compared.add(pair);
        this.#judge(front, behind, snapshot);
      }
    }
  }

  #keptItsPlace(lease: string, snapshot: LineEvent): boolean {
    const waiter = this.#waiters.get(lease);
    return waiter !== undefined && waiter.stableSince.at <= snapshot.at;
  }

  #judge(frontId: string, behindId: string, snapshot: LineEvent): void {
    const front = this.#acquires.get(frontId);
    const behind = this.#acquires.get(behindId);
    if (!front || behind?.returned?.out !== 'ok') return;
    if (this.#disturbed(front, snapshot) || this.#disturbed(behind, snapshot)) return;
    this.pairs += 1;
    const how = this.#overtaken(front, behind);
    if (!how) return;
    const { name } = front.event;
    const what = `${behind.event.worker} (${behindId}) was granted ${name} before ${front.event.worker} (${frontId}), which stood before it: ${how}.`;
    const shown: (HistoryEvent | undefined)[] = [snapshot, behind.event, behind.returned, front.event, front.returned];
    this.#violations.push({ ...violation('fifo', name, what, shown), at: behind.returned.at });
  }

  #overtaken(front: Call, behind: Call): string | undefined {
    const granted = behind.returned!;
    const { lastWaiting } = this.#waiters.get(front.event.id)!;
    const stillWaits = lastWaiting.until < (front.returned?.at ?? Number.POSITIVE_INFINITY);
    if (stillWaits && lastWaiting.at > granted.at) return 'it was seen waiting after that';
    const [a, b] = [this.#run.leases.get(front.event.id), this.#run.leases.get(behind.event.id)];
    if (!a || !b) return undefined;
    if (a.token !== undefined && b.token !== undefined && a.token > b.token) return 'its token is larger';
    // The one in front lets go after it has returned, so who may not be beside it returns later.
    return !mayCoexist(a, b) && a.grant.at > b.grant.at ? 'it returned later' : undefined;
  }

  #disturbed({ event, returned }: Call, snapshot: LineEvent): boolean {
    const until = returned?.at ?? this.#run.end;
    return faultsOn(this.#run, event.worker, snapshot.at - 2 * this.#run.ttl, until).length > 0;
  }
}
