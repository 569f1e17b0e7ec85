/** After all faults are healed every worker that lives is served soon, and every promise settles. */
import { type Finding, type Violation, violation } from '../finding.js';
import type { Life, Run } from '../run.js';

const SERVED_WITHIN_TTLS = 10;

export function checkLiveness(run: Run): Finding {
  const healed = run.phases.get('healed');
  const over = run.phases.get('over');
  if (healed === undefined || over === undefined)
    return {
      cases: 0,
      violations: [],
      undecided: ['The run did not come to its end: nothing says who was served after it.'],
    };
  const unserved = unservedAfter(run, healed, over);
  return { ...unserved, violations: [...unserved.violations, ...unsettled(run, healed, over)] };
}

function unservedAfter(run: Run, healed: number, over: number): Finding {
  const violations: Violation[] = [];
  const undecided: string[] = [];
  const served = servedTimes(run);
  for (const [worker, life] of run.lives) {
    const since = Math.max(healed, life.from);
    const deadline = since + SERVED_WITHIN_TTLS * run.ttl;
    if (life.to < healed || (served.get(worker) ?? []).some((at) => at >= since && at <= deadline)) continue;
    if (Math.min(over, life.to) >= deadline) violations.push(starved(run, worker, since));
    else if (life.from <= healed)
      undecided.push(`${worker} was not served after the healing, and had not ${SERVED_WITHIN_TTLS} ttl.`);
  }
  return { cases: [...run.lives.values()].filter(({ to }) => to >= healed).length, violations, undecided };
}

function servedTimes(run: Run): ReadonlyMap<string, readonly number[]> {
  const times = new Map<string, number[]>();
  for (const { worker, grant } of run.leases.values()) {
    const known = times.get(worker);
    if (known) known.push(grant.at);
    else times.set(worker, [grant.at]);
  }
  return times;
}

function starved(run: Run, worker: string, since: number): Violation {
  const waiting = run.calls.find(
    ({ event, returned }) => event.worker === worker && event.what === 'acquire' && (returned?.at ?? Infinity) > since,
  );
  return {
    ...violation(
      'liveness',
      waiting?.event.name,
      `${worker} was granted nothing within ${SERVED_WITHIN_TTLS} ttl after all was healed.`,
      [waiting?.event, waiting?.returned],
    ),
    at: since + SERVED_WITHIN_TTLS * run.ttl,
  };
}

/** Who was killed while faults were on took its promises with it. Who ended later ended by itself, and owes an answer. */
function unsettled(run: Run, healed: number, over: number): readonly Violation[] {
  const killed = ({ to }: Life): boolean => to < healed;
  return run.calls
    .filter(({ event, returned }) => !returned && event.at < over && !killed(run.lives.get(event.worker) ?? FOR_EVER))
    .map(({ event }) =>
      violation('liveness', event.name, `The ${event.what} ${event.id} of ${event.worker} never returned.`, [event]),
    );
}

const FOR_EVER: Life = { from: 0, to: Number.POSITIVE_INFINITY };
