/** Exclusion as users feel it: at no instant do the leases of a name that believe weigh more than fits. */
import { found, type Finding, type Violation, violation } from '../finding.js';
import type { HeldEvent } from '../history.js';
import { type Interval, type Lease, mayCoexist } from '../leases.js';
import type { Run } from '../run.js';
import { groupBy } from './group-by.js';

interface Edge {
  readonly at: number;
  readonly begins: boolean;
  readonly lease: Lease;
  readonly belief: Interval;
}

export function checkBelief(run: Run): Finding {
  const believers = [...run.leases.values()].filter(({ beliefs }) => beliefs.length > 0);
  const lines = [...groupBy(believers, ({ name }) => name).values()];
  return found(
    believers.length,
    lines.flatMap((leases) => overlaps(leases)),
  );
}

/** One violation for each lease that began to believe when there was no room for it. */
function overlaps(leases: readonly Lease[]): readonly Violation[] {
  const violations: Violation[] = [];
  const believing = new Map<string, { readonly lease: Lease; readonly belief: Interval; leases: number }>();
  let weight = 0;
  for (const { begins, lease, belief } of edges(leases)) {
    const same = believing.get(lease.hold);
    if (!begins) {
      same!.leases -= 1;
      if (same!.leases > 0) continue;
      believing.delete(lease.hold);
      weight -= same!.lease.weight;
    } else if (same) {
      same.leases += 1;
    } else {
      const other = rival(lease, [...believing.values()]);
      if (other && weight + lease.weight > lease.capacity) violations.push(overlap(other, { lease, belief }));
      believing.set(lease.hold, { lease, belief, leases: 1 });
      weight += lease.weight;
    }
  }
  return violations;
}

/** Who ends at the microsecond when another begins is no overlap: the clock is not finer than that. */
function edges(leases: readonly Lease[]): readonly Edge[] {
  return leases
    .flatMap((lease) =>
      lease.beliefs.flatMap((belief) => [
        { at: belief.from, begins: true, lease, belief },
        { at: belief.to, begins: false, lease, belief },
      ]),
    )
    .sort((a, b) => a.at - b.at || Number(a.begins) - Number(b.begins));
}

interface Believer {
  readonly lease: Lease;
  readonly belief: Interval;
}

/** Of a crowd that is too heavy only together, the one that has believed for longest. */
function rival(lease: Lease, believers: readonly Believer[]): Believer | undefined {
  return believers.find((other) => !mayCoexist(other.lease, lease)) ?? believers[0];
}

function overlap(a: Believer, b: Believer): Violation {
  const [until, since] = [checkAt(a, 'at', a.belief.to), checkAt(b, 'until', b.belief.from)];
  const bothMs = ((Math.min(a.belief.to, b.belief.to) - b.belief.from) / 1_000).toFixed(1);
  return {
    ...violation(
      'belief',
      a.lease.name,
      `${a.lease.worker} (${a.lease.id}, token ${a.lease.token ?? 'none'}) and ${b.lease.worker} (${b.lease.id}, token ${b.lease.token ?? 'none'}) both believed for ${bothMs} ms that they hold ${a.lease.name}.`,
      [a.lease.grant, b.lease.grant, since, until],
    ),
    at: b.belief.from,
  };
}

function checkAt({ lease }: Believer, edge: 'at' | 'until', time: number): HeldEvent | undefined {
  return lease.checks.find((check) => check.held && check[edge] === time);
}
