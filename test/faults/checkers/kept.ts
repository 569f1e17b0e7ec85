/**
 * A lease is lost only by what can cost one: a fault that was done to its worker, to what all workers need, or to its own
 * name, and a machine that let somebody starve. What is done beside us, or is harmless by the engine's page, explains no loss.
 */
import { found, type Finding, type Violation, violation } from '../finding.js';
import type { HistoryEvent } from '../history.js';
import { firstNo, type Lease } from '../leases.js';
import { type Fault, faultsOn, type Run } from '../run.js';

export function checkKept(run: Run): Finding {
  return found(
    run.leases.size,
    lossesOf(run)
      .filter(({ causes }) => causes.length === 0)
      .map(({ lease, told }) => invented(run, lease, told)),
  );
}

/** How many leases were lost by what; `nothing` are those that a checker complains about. */
export function lostBy(run: Run): Readonly<Record<string, number>> {
  const counts: Record<string, number> = {};
  for (const { causes } of lossesOf(run)) {
    const cause = [...new Set(causes.map(({ nemesis }) => nemesis))].sort().join(' and ') || 'nothing';
    counts[cause] = (counts[cause] ?? 0) + 1;
  }
  return counts;
}

interface Loss {
  readonly lease: Lease;
  readonly told: HistoryEvent;
  readonly causes: readonly Fault[];
}

function lossesOf(run: Run): readonly Loss[] {
  return [...run.leases.values()].flatMap((lease) => {
    const told = lossTold(lease);
    return told ? [{ lease, told, causes: causesOf(run, lease, told.at) }] : [];
  });
}

/** The first sign of it: `held` says no, the signal aborts, or the release finds nothing. */
function lossTold(lease: Lease): HistoryEvent | undefined {
  const { event: release, returned } = lease.release ?? {};
  const gone = returned?.out === 'lost' ? returned : undefined;
  const lost = lease.lost && lease.lost.at <= (release?.at ?? Number.POSITIVE_INFINITY) ? lease.lost : undefined;
  return [firstNo(lease), lost, gone].filter((event) => event !== undefined).sort((a, b) => a.at - b.at)[0];
}

/** Validity ends within a ttl of the last beat, and a session that the engine has buried hears of it with its next one. */
function causesOf(run: Run, { worker, name }: Lease, at: number): readonly Fault[] {
  return faultsOn(run, worker, at - 2 * run.ttl, at).filter(
    ({ begin: { harmless, only } }) => !harmless && (only === undefined || only === name),
  );
}

function invented(run: Run, lease: Lease, told: HistoryEvent): Violation {
  const near = faultsOn(run, lease.worker, told.at - 2 * run.ttl, told.at).map(({ begin }) => begin);
  const what = `${lease.worker} was told that it lost ${lease.name} (${lease.id}) though nothing had happened that costs a lease.`;
  return violation('kept', lease.name, what, [lease.grant, ...near, told]);
}
