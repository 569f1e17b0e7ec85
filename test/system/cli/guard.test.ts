/**
 * What the guard does as a lease comes to its end. The lease is a double whose validity ends when the test says, because a
 * real one, of the long ttl that leaves slow machines room, would take as long; its signal never aborts, so that all that
 * happens to the command is the guard's own doing, before the loss. The command is real.
 */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { setTimeout as pause } from 'node:timers/promises';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { ChildGuard } from '../../../src/cli/guard.js';
import { Family } from '../../../src/cli/family.js';
import type { Lease } from '../../../src/index.js';
import { Sandbox, until } from './sandbox.js';

const TTL_MS = 60_000;
/** The SIGKILL is sent this long before the end. */
const MARGIN_MS = TTL_MS / 20;
const GRACE_MS = 12_000;

let box: Sandbox;
let running: Family | undefined;

beforeEach(() => {
  box = new Sandbox();
});

afterEach(async () => {
  running?.signal('SIGKILL');
  await box[Symbol.asyncDispose]();
});

class EndingLease {
  readonly name = 'a';
  readonly signal = new AbortController().signal;
  state: Lease['state'] = 'jeopardy';
  looks = 0;
  #validUntil: number;

  constructor(remainingMs: number) {
    this.#validUntil = performance.now() + remainingMs;
  }

  get remaining(): number {
    this.looks += 1;
    return this.left;
  }

  onEvicted(): void {}

  /** The same, when we look. Below zero it is over. */
  get left(): number {
    return this.#validUntil - performance.now();
  }

  guard(group: Family): ChildGuard {
    const guard = new ChildGuard(this as unknown as Lease, { ttlMs: TTL_MS, graceMs: GRACE_MS });
    guard.watch(group);
    return guard;
  }
}

/** A shell script in a group of its own, that has said that it is ready. */
async function start(script: string): Promise<{ group: Family; ended: Promise<unknown[]> }> {
  const child = spawn('sh', ['-c', script], { detached: true, stdio: ['ignore', 'pipe', 'ignore'] });
  running = new Family(child, true);
  const ended = once(child, 'exit');
  await once(child.stdout, 'data');
  return { group: running, ended };
}

test('a command that ignores SIGTERM while beats fail is killed with its group before the lock is lost', async () => {
  const heard = box.path('heard');
  const { group, ended } = await start(
    `trap 'echo TERM >> ${heard}' TERM
     sh -c 'trap "" TERM; echo ready; while :; do sleep 1; done' &
     while :; do wait; done`,
  );
  const lease = new EndingLease(MARGIN_MS + 1_000);
  expect((await lease.guard(group).end())?.why).toMatch(/^"a" was about to be lost/);
  expect(group.alive()).toBe(false);
  expect(lease.left).toBeGreaterThan(0);
  expect(await ended).toEqual([null, 'SIGKILL']);
  expect(box.text('heard')).toBe('TERM\n');
});

test('a command has its whole grace, and ends by itself', async () => {
  const { group, ended } = await start(`trap 'sleep 0.3; exit 5' TERM; echo ready; while :; do sleep 0.02; done`);
  const lease = new EndingLease(GRACE_MS + 200);
  const guard = lease.guard(group);
  expect(await ended).toEqual([5, null]);
  expect((await guard.end())?.why).toMatch(/^"a" was about to be lost/);
  expect(lease.left).toBeGreaterThan(MARGIN_MS);
});

test('a lock that is in jeopardy and then safe again costs the command nothing', async () => {
  const { group } = await start(`trap 'exit 5' TERM; echo ready; while :; do sleep 0.02; done`);
  const lease = new EndingLease(TTL_MS * 0.9);
  const guard = lease.guard(group);
  const { looks } = lease;
  expect(looks).toBeGreaterThan(0);
  lease.state = 'held';
  await until(() => lease.looks > looks || !group.alive());
  expect(await guard.end()).toBeUndefined();
  expect(group.alive()).toBe(true);
});

test('what can’t be killed is said', async () => {
  // A process of another user: only root could make a real one.
  const family = { signal: () => {}, remember: () => {}, goneBy: () => pause(10, false), pids: [4711] };
  const lease = new EndingLease(MARGIN_MS);
  expect(await lease.guard(family as unknown as Family).end()).toMatchObject({ left: [4711] });
});
