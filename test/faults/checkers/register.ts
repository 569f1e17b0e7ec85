/** The fenced register of every name is linearizable, refuses stale tokens, and loses no update. */
import { type Finding, type Violation, violation } from '../finding.js';
import { FINAL, type HistoryEvent } from '../history.js';
import { linearize } from '../linearizable.js';
import { registerModel, type RegisterOp, type RegisterState } from '../register-model.js';
import type { Call, Run } from '../run.js';
import { groupBy } from './group-by.js';

interface Access extends RegisterOp {
  readonly of: Call;
}

export function checkRegister(run: Run): Finding {
  const accesses = run.calls.filter(({ event }) => event.what === 'read' || event.what === 'write');
  const violations: Violation[] = [];
  const undecided: string[] = [];
  for (const [name, calls] of groupBy(accesses, ({ event }) => event.name)) {
    const answer = linearize<RegisterState, Access>(
      registerModel,
      calls.map((call) => access(call)),
    );
    if (answer.linearizable === undefined)
      undecided.push(`The register of ${name} could not be checked: too many orders.`);
    if (answer.linearizable === false) violations.push(unexplained(name, answer.at, answer.state, answer.after));
    violations.push(...lostUpdates(run, name, calls), ...missingUpdates(name, calls));
  }
  return { cases: accesses.length, violations, undecided };
}

function access(of: Call): Access {
  const { event, returned } = of;
  const out = returned?.out === 'ok' || returned?.out === 'stale' ? returned.out : 'unknown';
  return {
    of,
    call: event.at,
    ret: out === 'unknown' ? Number.POSITIVE_INFINITY : returned!.at,
    what: event.what === 'write' ? 'write' : 'read',
    reader: event.mode === 'read',
    token: event.token === undefined ? undefined : BigInt(event.token),
    value: (event.what === 'write' ? event.value : returned?.value) ?? 0,
    out,
  };
}

function unexplained(name: string, at: Access, { value, maxRead, maxWrite }: RegisterState, after?: Access): Violation {
  const newest = maxRead > maxWrite ? maxRead : maxWrite;
  const { worker, id } = at.of.event;
  const got =
    at.out === 'stale' ? 'was refused' : at.what === 'read' ? `gave ${at.value}` : `of ${at.value} was accepted`;
  return violation(
    'register',
    name,
    `No order explains that the ${at.what} ${id} of ${worker} with token ${at.token ?? 'none'} ${got}: the register of ${name} held ${value} and had seen token ${newest}.`,
    [...eventsOf(after?.of), ...eventsOf(at.of)],
  );
}

/** Two holds read the same value and both wrote what they made of it: the fence should have refused the older. */
function lostUpdates(run: Run, name: string, calls: readonly Call[]): readonly Violation[] {
  const read = new Map<string, number>();
  const written = new Map<string, { readonly hold: string; readonly call: Call }>();
  const violations: Violation[] = [];
  for (const call of calls) {
    const { event, returned } = call;
    if (returned?.out !== 'ok') continue;
    if (event.what === 'read') read.set(event.lease, returned.value ?? 0);
    const from = read.get(event.lease);
    if (event.what !== 'write' || from === undefined) continue;
    const hold = run.leases.get(event.lease)?.hold ?? event.lease;
    const update = `${from} → ${event.value ?? 0}`;
    const first = written.get(update);
    if (first && first.hold !== hold) violations.push(lost(name, update, first.call, call));
    else written.set(update, { hold, call });
  }
  return violations;
}

/** Every update adds one: what is there in the end is how many were made. Of those without an answer each may be. */
function missingUpdates(name: string, calls: readonly Call[]): readonly Violation[] {
  const final = calls.find(({ event }) => event.worker === FINAL);
  if (final?.returned?.value === undefined) return [];
  const writes = calls.filter(({ event }) => event.what === 'write');
  const acknowledged = writes.filter(({ returned }) => returned?.out === 'ok').length;
  const refused = writes.filter(({ returned }) => returned?.out === 'stale').length;
  const most = writes.length - refused;
  const { value } = final.returned;
  if (value >= acknowledged && value <= most) return [];
  const what = `${acknowledged} updates of ${name} were acknowledged, at most ${most} were made, and ${value} is there in the end.`;
  return [violation('register', name, what, eventsOf(final))];
}

function lost(name: string, update: string, first: Call, second: Call): Violation {
  const [a, b] = [first.event, second.event];
  return violation(
    'register',
    name,
    `An update was lost: ${a.worker} (token ${a.token ?? 'none'}) and ${b.worker} (token ${b.token ?? 'none'}) both wrote ${update} to the register of ${name}.`,
    [...eventsOf(first), ...eventsOf(second)],
  );
}

function eventsOf(call: Call | undefined): readonly HistoryEvent[] {
  return call ? [call.event, ...(call.returned ? [call.returned] : [])] : [];
}
