/** The process that stalls, for stalled.test.ts. */
import { existsSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import { Holdfast } from 'holdfast';
import { guardedBy } from '../../faults/guards.js';

/** A lock, and what it protects. */
export interface Case {
  readonly name: string;
  readonly url: string;
  readonly fenced: boolean;
}

export interface HolderSetup {
  readonly stall: 'stopped' | 'blocked';
  readonly cases: readonly Case[];
  readonly locks: string;
  /** There once it may go on. */
  readonly wakeFile: string;
}

export interface Outcome {
  readonly name: string;
  /** After it woke up. */
  readonly held: boolean;
  readonly write: 'ok' | 'stale';
  readonly readAgain: 'ok' | 'stale';
}

export type FromHolder = { readonly say: 'read' } | { readonly say: 'woke'; readonly outcomes: readonly Outcome[] };

const MOMENT = new Int32Array(new SharedArrayBuffer(4));

const { stall, cases, locks: url, wakeFile } = JSON.parse(process.argv[2]!) as HolderSetup;
// Short, because it is waited for; but long enough that it is still held when all clients are loaded and have read.
const locks = new Holdfast(url, { ttl: '5s' });
const holds = await Promise.all(cases.map((each) => begin(each)));
for (const { lease } of holds) lease.assertHeld(); // the last check; from here on it believes
await new Promise((resolve) => process.send!({ say: 'read' } satisfies FromHolder, resolve));
while (!existsSync(wakeFile)) {
  // Stopped from outside, it waits as everybody does; blocked, it lets nothing else run in this process.
  if (stall === 'blocked') Atomics.wait(MOMENT, 0, 0, 20);
  else await sleep(20);
}
const outcomes = await Promise.all(holds.map((hold) => goOn(hold)));
process.send!({ say: 'woke', outcomes } satisfies FromHolder);

type Hold = Awaited<ReturnType<typeof begin>>;

async function begin({ name, url, fenced }: Case) {
  const guarded = guardedBy(url);
  const lease = await locks.mutex(name).acquire({ timeout: '40s' });
  const access = { name, token: fenced ? lease.token : undefined, shared: false };
  const seen = await guarded.read(access);
  if (!seen.ok) throw new Error('The first holder was refused.');
  return { name, guarded, lease, access, seen };
}

async function goOn({ name, guarded, lease, access, seen }: Hold): Promise<Outcome> {
  const write = await guarded.write(access, seen.value + 1);
  const again = await guarded.read(access);
  return { name, held: lease.held, write: write.ok ? 'ok' : 'stale', readAgain: again.ok ? 'ok' : 'stale' };
}
