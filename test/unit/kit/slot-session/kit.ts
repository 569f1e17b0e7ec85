/** A session on slots: what is late, lost or twice on the way to a system that has nothing but one slot per name. */
import { beforeEach, expect } from 'vitest';
import type { Claim, Roster } from '../../../../src/core/engine.js';
import { ALL } from '../../../../src/core/line.js';
import { SlotSession } from '../../../../src/kit/slot-session.js';
import { Pending } from '../../scripted-engine.js';
import { ScriptedSlots } from '../../scripted-slots.js';
import { VirtualClock } from '../../virtual-clock.js';

export const TTL_MS = 9_000;
export const BEAT_MS = TTL_MS / 3;
export const NAME = 'job';

export let clock: VirtualClock;
export let store: ScriptedSlots;
export let session: SlotSession;
/** What the session told unasked: 'granted a', 'lost a'. */
export let told: string[];

/** Every test of the file begins with new ones. */
export function newForEachTest(): void {
  beforeEach(() => {
    clock = new VirtualClock();
    store = new ScriptedSlots(clock, TTL_MS);
    told = [];
    session = new SlotSession({
      options: { id: 'session', realm: '', ttlMs: TTL_MS, label: 'test' },
      listener: {
        granted: (id) => void told.push(`granted ${id}`),
        lost: (id) => void told.push(`lost ${id}`),
        ended: () => void told.push('ended'),
        hinted: () => {},
      },
      clock,
      store: (lost) => Object.assign(store, { lost }),
    });
  });
}

let serial = 0;

export function claimOf(id: string, changes: Partial<Claim> = {}): Claim {
  serial += 1;
  const line = { kind: 'lock', name: NAME } as const;
  return { id, line, serial, weight: ALL, capacity: ALL, wait: true, note: '', ...changes };
}

/** What the core would say with a beat. */
export function rosterOf(
  held: readonly Claim[],
  waiting: readonly Claim[] = [],
  unsettled: readonly Claim[] = [],
): Roster {
  const standing = [...held, ...waiting];
  return {
    count: standing.length,
    held: held.length,
    checksum: standing.reduce((sum, { serial }) => sum + serial, 0) >>> 0,
    unsettled: unsettled.map(({ id }) => id),
  };
}

/** The store does what is asked at once, and answers calls that begin like this when the gate opens. */
export function answerLate(beginning: string): Pending<void> {
  const gate = new Pending<void>();
  store.network = async (call, run) => {
    const answer = run();
    if (call.startsWith(beginning)) await gate.promise;
    return answer;
  };
  return gate;
}

/** Calls that begin like this get to the store when the gate opens. */
export function deliverLate(beginning: string): Pending<void> {
  const gate = new Pending<void>();
  store.network = async (call, run) => {
    if (call.startsWith(beginning)) await gate.promise;
    return run();
  };
  return gate;
}

export function heal(): void {
  store.network = async (_, run) => run();
}

export async function hold(claim: Claim): Promise<void> {
  expect(await session.enter(claim)).toMatchObject({ state: 'held' });
}

export function trying(id: string): Claim {
  return claimOf(id, { wait: false });
}
