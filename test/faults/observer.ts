/** Looks at all lines again and again, as an operator would, and writes what it saw into the history. */
import { setTimeout as sleep } from 'node:timers/promises';
import type { Holdfast } from 'holdfast';
import { type HistoryEvent, nowMicros } from './history.js';

const LOOK_MS = 100;

/** @param timed is told when a look began and ended, whatever came of it. */
export async function observe(
  locks: Holdfast,
  write: (event: HistoryEvent) => void,
  over: () => boolean,
  timed: (from: number, to: number) => void = () => {},
): Promise<void> {
  while (!over()) {
    const from = nowMicros();
    await look(locks, write).catch(() => {
      // The engine is under faults.
    });
    timed(from, nowMicros());
    await sleep(LOOK_MS);
  }
}

async function look(locks: Holdfast, write: (event: HistoryEvent) => void): Promise<void> {
  const at = nowMicros();
  for await (const line of locks.inspect()) {
    const claims = line.claims.map(({ label, state }) => ({ lease: label.split('@')[0]!, state }));
    write({ kind: 'line', at, until: nowMicros(), name: line.name, claims });
  }
}
