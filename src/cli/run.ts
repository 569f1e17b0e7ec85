/** `holdfast run`: take the lock, run the command, give the lock back. */
import { basename } from 'node:path';
import { AcquireTimeoutError, Holdfast, type Lease, type Lock } from '../index.js';
import { startChild } from './child.js';
import { EXIT, Failure } from './failure.js';
import { Guard } from './guard.js';
import { type RunOptions, type Want } from './options.js';
import { engineUrl, enterNesting } from './place.js';
import { exitOfSignal, type Signal, Signals } from './signals.js';
import { quote } from './text.js';
import { heldBy, showWaiting } from './waiting.js';

/** How long a goodbye to the engine may take after a signal; what it does not hear ends with the ttl. */
const GOODBYE_MS = 1_000;

export async function run(options: RunOptions): Promise<number> {
  const url = engineUrl(options.url, process.env);
  const nesting = enterNesting(options.name, options.want, url, process.env);
  using signals = new Signals();
  const locks = new Holdfast(url, { ttl: options.ttlMs, label: labelOf(options.command[0]) });
  try {
    const lease = await acquire(lockOf(locks, options.name, options.want), options, signals);
    if (typeof lease === 'string') return exitOfSignal(lease);
    return await runUnder(lease, options, signals, nesting.env);
  } finally {
    await within(GOODBYE_MS, locks.close());
  }
}

function lockOf(locks: Holdfast, name: string, want: Want): Lock {
  if (want.kind === 'semaphore') return locks.semaphore(name, want.of);
  return want.kind === 'shared' ? locks.rwLock(name).read : locks.mutex(name);
}

/** The lease, or the signal that ended the wait. */
async function acquire(lock: Lock, options: RunOptions, signals: Signals): Promise<Lease | Signal> {
  const { waitMs, want } = options;
  const abort = new AbortController();
  let interrupt: Signal | undefined;
  signals.to((signal) => {
    // Who asks twice does not want to wait for a goodbye either.
    if (interrupt) process.exit(exitOfSignal(signal));
    interrupt = signal;
    abort.abort();
  });
  using _line = showWaiting(lock);
  try {
    const lease = await lock.acquire({
      signal: abort.signal,
      ...(waitMs !== undefined && { timeout: waitMs }),
      ...(want.kind === 'semaphore' && { permits: want.permits }),
    });
    // Granted in the same moment: the lock goes back with the rest when the instance is closed.
    return interrupt ?? lease;
  } catch (error) {
    if (interrupt) return interrupt;
    throw error instanceof AcquireTimeoutError ? busy(error, options) : error;
  }
}

async function runUnder(
  lease: Lease,
  options: RunOptions,
  signals: Signals,
  env: Readonly<Record<string, string>>,
): Promise<number> {
  const early: Signal[] = [];
  signals.to((signal) => early.push(signal));
  const lock = { HOLDFAST_LOCK: lease.name, HOLDFAST_TOKEN: lease.token.toString() };
  const child = await startChild(options.command, { ...process.env, ...env, ...lock });
  signals.to(child.forward);
  for (const signal of early) child.forward(signal);
  const guard = new Guard(lease, child.group, options);
  const code = await child.ended;
  signals.to(() => {});
  const stopped = await guard.end();
  if (stopped !== undefined) throw lost(`the command was stopped: ${stopped}`);
  if (!(await lease.release()))
    throw lost(`${quote(lease.name)} was lost before the command ended: not all of it was done under the lock`);
  return code;
}

function busy({ holder, place }: AcquireTimeoutError, { name, busyExit, waitMs }: RunOptions): Failure {
  const who = holder ? `: ${heldBy(holder)}` : '';
  const before = place !== undefined && place > 1 ? `, ${place} before us` : '';
  const waited = waitMs ? ` (waited ${waitMs / 1_000}s)` : '';
  return new Failure(busyExit, 'HOLDFAST_TIMEOUT', `${quote(name)} is busy${who}${before}${waited}`);
}

function lost(message: string): Failure {
  return new Failure(EXIT.lost, 'HOLDFAST_LOST', message);
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
  let timer: NodeJS.Timeout | undefined;
  await Promise.race([work, new Promise<void>((resolve) => (timer = setTimeout(resolve, ms)))]);
  clearTimeout(timer);
}
