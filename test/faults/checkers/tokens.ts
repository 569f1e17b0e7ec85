/**
 * Of two grants that may not coexist the later has the larger token; two such tokens are never the same.
 *
 * A server that was cut off and replaced knows nothing of its successor, so what it grants may be behind: that is what
 * lets a fence refuse it. Its own grants must be in order among themselves and with all of before, and those of everybody
 * else with all there are.
 */
import { found, type Finding, type Violation, violation } from '../finding.js';
import { type Lease, mayCoexist } from '../leases.js';
import type { Fault, Run } from '../run.js';
import { groupBy } from './group-by.js';

/** A hold: what several leases of a re-entrant lock share counts from its first acquire. */
type Minted = Lease & { readonly token: bigint };

export function checkTokens(run: Run): Finding {
  const minted = firstOfHolds([...run.leases.values()].filter((lease): lease is Minted => lease.token !== undefined));
  const lines = [...groupBy(minted, ({ name }) => name).values()];
  return found(minted.length, [
    ...lines.flatMap((leases) => allOutOfOrder(run, leases)),
    ...lines.flatMap((leases) => repeated(leases)),
  ]);
}

/** Re-entering hands out an old token by design: only the outermost acquire must be in order. */
function firstOfHolds(leases: readonly Minted[]): readonly Minted[] {
  const holds = new Map<string, Minted>();
  for (const lease of leases.toSorted((a, b) => a.grant.at - b.grant.at)) {
    const key = `${lease.name} ${lease.hold}`;
    if (!holds.has(key)) holds.set(key, lease);
  }
  return [...holds.values()];
}

function allOutOfOrder(run: Run, leases: readonly Minted[]): readonly Violation[] {
  const isolations = run.faults.filter(({ begin }) => begin.isolated);
  if (isolations.length === 0) return outOfOrder(leases, () => true);
  const overlapping = ({ call, grant }: Minted): readonly Fault[] =>
    isolations.filter(({ from, to }) => from <= grant.at && to >= call.at);
  const isolated = (lease: Minted): boolean =>
    overlapping(lease).some(({ begin }) => begin.isolated!.includes(lease.worker));
  const known = leases.filter((lease) => isolated(lease) || overlapping(lease).length === 0);
  return [...outOfOrder(leases, (later) => !isolated(later)), ...outOfOrder(known, isolated)];
}

/** A sweep in order of calls, beside one in order of returns: the largest token so far is kept for each weight. */
function outOfOrder(leases: readonly Minted[], judged: (later: Minted) => boolean): readonly Violation[] {
  const returned = leases.toSorted((a, b) => a.grant.at - b.grant.at);
  const newest = new Map<number, Minted>();
  const violations: Violation[] = [];
  let at = 0;
  for (const lease of leases.toSorted((a, b) => a.call.at - b.call.at)) {
    for (; at < returned.length && returned[at]!.grant.at < lease.call.at; at += 1) remember(newest, returned[at]!);
    const earlier = [...newest.values()].find((other) => !mayCoexist(other, lease) && other.token > lease.token);
    if (earlier && judged(lease)) violations.push(broken(earlier, lease, 'smaller'));
  }
  return violations;
}

function remember(newest: Map<number, Minted>, lease: Minted): void {
  const known = newest.get(lease.weight);
  if (!known || known.token < lease.token) newest.set(lease.weight, lease);
}

/** Of those with one token the two heaviest are the likeliest not to fit. */
function repeated(leases: readonly Minted[]): readonly Violation[] {
  return [...groupBy(leases, ({ token }) => token).values()].flatMap((same) => {
    const [a, b] = same.toSorted((a, b) => b.weight - a.weight);
    return a && b && !mayCoexist(a, b) ? [broken(a, b, 'same')] : [];
  });
}

function broken(a: Minted, b: Minted, how: 'smaller' | 'same'): Violation {
  const than = how === 'same' ? 'the same token as' : `a smaller token than ${a.token} of`;
  return violation(
    'tokens',
    a.name,
    `${b.worker} (${b.id}) got ${b.token} for ${a.name}, ${than} ${a.worker} (${a.id})${how === 'same' ? '' : ', which had it before'}.`,
    [a.call, a.grant, b.call, b.grant],
  );
}
