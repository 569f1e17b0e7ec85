/** `holdfast run`: take the lock, run the command, give the lock back. */
import { basename } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import { AcquireTimeoutError, EngineError, Holdfast, type Lease, type Lock } from '../index.js';
import { type Child, hasTerminal, startChild } from './child.js';
import { EXIT, Failure } from './failure.js';
import { ChildGuard, type Stopped } from './guard.js';
import { type RunOptions, type WantedLock } from './options.js';
import { enterNesting, type Nesting } from './nesting.js';
import { engineUrl } from './place.js';
import { exitOfSignal, type Signal, Signals } from './signals.js';
import { StopTogether } from './stop-together.js';
import { quote } from './text.js';
import { heldBy, showWaiting } from './waiting.js';

/** How long a goodbye to the engine may take after a signal; what it does not hear ends with the ttl. */
const GOODBYE_MS = 1_000;

export async function run(options: RunOptions): Promise<number> {
  const url = engineUrl(options.url, process.env);
  const nesting = enterNesting(options.name, options.want, url, process.env);
  using signals = new Signals(options);
  const locks = new Holdfast(url, { ttl: options.ttlMs, label: labelOf(options.command[0]) });
  try {
    const lease = await acquire(locks, url, options, signals);
    if (typeof lease === 'string') return exitOfSignal(lease);
    return await runUnder(lease, options, signals, nesting);
  } finally {
    await within(GOODBYE_MS, locks.close());
  }
}

function lockOf(locks: Holdfast, name: string, want: WantedLock): Lock {
  if (want.kind === 'semaphore') return locks.semaphore(name, want.of);
  return want.kind === 'shared' ? locks.rwLock(name).read : locks.mutex(name);
}

/** The lease, or the signal that ended the wait. */
async function acquire(locks: Holdfast, url: string, options: RunOptions, signals: Signals): Promise<Lease | Signal> {
  const { waitMs, want } = options;
  const lock = lockOf(locks, options.name, want);
  const abort = new AbortController();
  let interrupt: Signal | undefined;
  signals.to((signal) => {
    // Who asks twice does not want to wait for a goodbye either.
    if (interrupt) process.exit(exitOfSignal(signal));
    interrupt = signal;
    abort.abort();
  });
  using _line = showWaiting(locks, lock);
  const ask = (): Promise<Lease> =>
    lock.acquire({
      signal: abort.signal,
      ...(waitMs !== undefined && { timeout: waitMs }),
      ...(want.kind === 'semaphore' && { permits: want.permits }),
    });
  try {
    const lease = await persistently(ask, (error) => pauseAfter(error, url, waitMs), abort.signal);
    // Granted in the same moment: the lock goes back with the rest when the instance is closed.
    return interrupt ?? lease;
  } catch (error) {
    if (interrupt) return interrupt;
    throw error instanceof AcquireTimeoutError ? busy(error, options) : error;
  }
}

async function persistently(
  ask: () => Promise<Lease>,
  pauseMsAfter: (error: unknown) => number | undefined,
  signal: AbortSignal,
): Promise<Lease> {
  for (;;) {
    try {
      return await ask();
    } catch (error) {
      const pauseMs = pauseMsAfter(error);
      if (pauseMs === undefined) throw error;
      await pause(pauseMs, undefined, { signal });
    }
  }
}

/** How long to wait before the lock is asked for again. Undefined: this error is final. */
function pauseAfter(error: unknown, url: string, waitMs: number | undefined): number | undefined {
  // A server that has just started grants nothing to anybody for a while. `-n` waits for its end, because a job that is
  // skipped for that is skipped on all machines.
  if (waitMs === 0) return error instanceof EngineError ? error.retryAfterMs : undefined;
  // A lock file that is busy, because so many use it, is one more thing to wait for.
  return waitMs === undefined && /^sqlite:/i.test(url) && isBusy(error) ? 0 : undefined;
}

/** It did not answer in time, or said that it was busy. Anything else that is wrong has an error of SQLite's among its causes. */
function isBusy(error: unknown): boolean {
  if (!(error instanceof EngineError && error.retryable)) return false;
  return error.cause === undefined || isBusy(error.cause);
}

async function runUnder(lease: Lease, options: RunOptions, signals: Signals, { env, mark }: Nesting): Promise<number> {
  const early: Signal[] = [];
  signals.to((signal) => early.push(signal));
  const lock = { HOLDFAST_LOCK: lease.name, HOLDFAST_TOKEN: lease.token.toString() };
  const hidden = options.hideUrl ? { HOLDFAST_URL: undefined } : {};
  const inherited = { ...process.env, ...env, ...lock, ...hidden };
  const ownSession = process.platform !== 'win32' && (options.ignoreHangup || !hasTerminal());
  using stops = process.platform === 'win32' ? undefined : new StopTogether({ ownSession });
  lease.assertHeld();
  const guard = new ChildGuard(lease, options);
  const child = await startChild(options.command, inherited, { ownSession, mark });
  guard.watch(child.family);
  signals.to(child.forward);
  for (const signal of early) child.forward(signal);
  stops?.with(child.family, guard);
  const code = await Promise.race([child.ended, guard.unstoppable]);
  if (code !== undefined) await outlast(guard, child, options);
  const stopped = await guard.end();
  if (stopped) throw lost(stopped);
  const goodbye = hurried(signals);
  if (!(await Promise.race([lease.release(), goodbye])))
    throw new Failure(
      EXIT.lost,
      'HOLDFAST_LOST',
      `${quote(lease.name)} was lost before the command ended: not all of it was done under the lock`,
    );
  return code!;
}

/** Who was asked to end has not ended before all that it started has. Who ends by itself may leave something behind. */
async function outlast(guard: ChildGuard, child: Child, { name, graceMs, waitAll }: RunOptions): Promise<void> {
  if (!child.asked && !waitAll) return;
  // Those who are left may be asked to end only now.
  await guard.outlast({ child, graceMs }, (left) => {
    const who = `${left.length === 1 ? 'process' : 'processes'} ${left.join(', ')}`;
    process.stderr.write(`holdfast: ${quote(name)} is kept until ${who} of the command end: they can't be killed\n`);
  });
}

/** The command has ended. A signal now means that nobody wants to wait for the engine: the lock goes with its ttl. */
function hurried(signals: Signals): Promise<true> {
  return new Promise((resolve) => signals.to(() => resolve(true)));
}

function busy({ holder, place }: AcquireTimeoutError, { name, busyExit, waitMs }: RunOptions): Failure {
  const who = holder ? `: ${heldBy(holder)}` : '';
  const before = place !== undefined && place > 1 ? `, ${place} before us` : '';
  const waited = waitMs ? ` (waited ${waitMs / 1_000}s)` : '';
  return new Failure(busyExit, 'HOLDFAST_TIMEOUT', `${quote(name)} is busy${who}${before}${waited}`);
}

function lost({ why, left }: Stopped): Failure {
  if (left.length === 0) return new Failure(EXIT.lost, 'HOLDFAST_LOST', `the command was stopped: ${why}`);
  const who = `${left.length === 1 ? 'process' : 'processes'} ${left.join(', ')}`;
  return new Failure(
    EXIT.unstopped,
    'HOLDFAST_UNSTOPPED',
    `${why.replace(/\.$/, '')}. ${who} of the command could not be stopped and may work on without the lock`,
  );
}

/** What others see beside host and pid: the command's name, as far as a label may hold it. */
function labelOf(file: string): string {
  const name = basename(file)
    .slice(0, 100)
    .toWellFormed()
    .replace(/\p{Cc}/gu, '?');
  return name || 'holdfast';
}

async function within(ms: number, work: Promise<void>): Promise<void> {
  const over = new AbortController();
  await Promise.race([work, pause(ms, undefined, { signal: over.signal }).catch(() => {})]);
  over.abort();
}
