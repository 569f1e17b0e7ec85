/** What a lease says is true: every loss is told, and what is over stays over. */
import { found, type Finding, type Violation, violation } from '../finding.js';
import type { HeldEvent } from '../history.js';
import { firstNo, type Lease } from '../leases.js';
import { faultsOn, type Run } from '../run.js';

export function checkTruth(run: Run): Finding {
  return found(
    run.leases.size,
    [...run.leases.values()].flatMap((lease) => [cameBack, untold].flatMap((check) => check(run, lease))),
  );
}

/** `held` says no for good. Only a jump of the wall clock, which looks like sleep, leaves a doubt that can be cleared. */
function cameBack(run: Run, lease: Lease): readonly Violation[] {
  const no = firstNo(lease);
  const over = Math.min(no?.until ?? Number.POSITIVE_INFINITY, lease.lost?.at ?? Number.POSITIVE_INFINITY);
  const yes = lease.checks.find(({ held, at }) => held && at > over);
  if (!yes || (doubtful(run, lease, yes.at) && !(lease.lost && lease.lost.at < yes.at))) return [];
  const what = `${lease.worker} was told that it holds ${lease.name} (${lease.id}) after it had been told that it does not.`;
  return [violation('truth', lease.name, what, [lease.grant, no, lease.lost, yes])];
}

function untold(run: Run, lease: Lease): readonly Violation[] {
  const no = firstNo(lease);
  const told =
    lease.lost !== undefined || lease.release?.returned?.out === 'lost' || lease.release?.returned?.out === 'error';
  if (!no || told || !hadTimeToTell(run, lease, no) || doubtful(run, lease, run.end)) return [];
  const what = `${lease.worker} lost ${lease.name} (${lease.id}): its signal did not abort, and no release said so.`;
  return [violation('truth', lease.name, what, [lease.grant, no, lease.release?.event, lease.release?.returned])];
}

/** A release has its answer, or the worker lived on for a ttl: before that, nobody can blame it. */
function hadTimeToTell(run: Run, lease: Lease, no: HeldEvent): boolean {
  if (lease.release) return lease.release.returned !== undefined;
  const end = Math.min(run.lives.get(lease.worker)?.to ?? Number.POSITIVE_INFINITY, run.end);
  const stalls = faultsOn(run, lease.worker, no.at, end).map(({ to }) => to);
  return end > Math.max(no.until, ...stalls) + run.ttl;
}

function doubtful(run: Run, { worker, grant }: Lease, until: number): boolean {
  return faultsOn(run, worker, grant.at - 2 * run.ttl, until).some(({ nemesis }) => nemesis.includes('clock'));
}
