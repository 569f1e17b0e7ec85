/**
 * What waiting costs, and how long a lock takes from one process to the next: `holdfast run` on the default file, `flock` of
 * util-linux, and `proper-lockfile`, which tries again after 10 ms. Every waiter is a process of its own.
 */
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout } from 'node:timers/promises';
import { Holdfast } from 'holdfast';

const MAIN = join(import.meta.dirname, '../../dist/cli/main.js');
const COUNTS = [1, 10, 50, 200];
const SAMPLE_MS = 5_000;
/** So many start at a time: a machine that is busy with starting Node.js two hundred times renews no locks. */
const AT_ONCE = 10;
/** What Linux counts the time of a process in. */
const TICK_MS = 10;

interface Locker {
  readonly name: string;
  /** The command that takes the lock of this folder and then runs a shell script. */
  command(folder: string, script: string): readonly [string, ...string[]];
  /** Resolves when so many wait. */
  queued(folder: string, waiters: readonly ChildProcess[]): Promise<void>;
}

/** Those that tell nobody who waits. */
const started = (): Promise<void> => setTimeout(3_000);

const LOCKERS: readonly Locker[] = [
  {
    name: 'holdfast run',
    command: (folder, script) => [
      process.execPath,
      MAIN,
      'run',
      'bench',
      '--url',
      `sqlite:${join(folder, 'locks.db')}`,
      '--',
      'sh',
      '-c',
      script,
    ],
    async queued(folder, waiters) {
      await using locks = new Holdfast(`sqlite:${join(folder, 'locks.db')}`, { ttl: '5m' });
      while ((await locks.mutex('bench').inspect()).claims.length < waiters.length + 1) await setTimeout(200);
    },
  },
  {
    name: 'flock(1)',
    command: (folder, script) => ['flock', join(folder, 'flock'), 'sh', '-c', script],
    queued: started,
  },
  {
    name: 'proper-lockfile',
    command: (folder, script) => [
      process.execPath,
      join(import.meta.dirname, 'lockfile-run.mjs'),
      join(folder, 'lockfile'),
      script,
    ],
    queued: started,
  },
];

/** Percent of a core for each waiter, and the median of the time from one command to the next. */
export async function* waiting(): AsyncIterable<string> {
  for (const locker of LOCKERS) {
    for (const count of COUNTS) {
      const { percent, handoffMs } = await measure(locker, count);
      const share = percent < 0.01 ? '< 0.01' : percent.toFixed(2);
      const goal = locker.name === 'holdfast run' ? ' (goal ≤ 0.5)' : '';
      const name = `${locker.name}, ${count} ${count === 1 ? 'waits' : 'wait'}`;
      yield `${name}: ${share} % of a core each${goal}, next command after ${handoffMs.toFixed(1)} ms (median)`;
    }
  }
}

async function measure(locker: Locker, count: number): Promise<{ percent: number; handoffMs: number }> {
  const folder = mkdtempSync(join(tmpdir(), 'holdfast-bench-'));
  const [log, held, go] = ['log', 'held', 'go'].map((name) => join(folder, name)) as [string, string, string];
  const start = (script: string): ChildProcess => {
    const [file, ...args] = locker.command(folder, script);
    return spawn(file, args, { stdio: ['ignore', 'ignore', 'inherit'] });
  };
  const holder = start(`: > ${held}; until [ -e ${go} ]; do sleep 0.05; done; date +%s%N >> ${log}`);
  while (!existsSync(held)) await setTimeout(20);
  const waiters: ChildProcess[] = [];
  while (waiters.length < count) {
    waiters.push(
      ...Array.from({ length: Math.min(AT_ONCE, count - waiters.length) }, () => start(`date +%s%N >> ${log}`)),
    );
    await locker.queued(folder, waiters);
  }
  const ended = Promise.all([holder, ...waiters].map((child) => once(child, 'exit')));
  const [before, since] = [cpuMs(waiters), performance.now()];
  await setTimeout(SAMPLE_MS);
  const percent = ((cpuMs(waiters) - before) / (performance.now() - since) / count) * 100;
  writeFileSync(go, '');
  const codes = (await ended).map(([code]) => code as number);
  if (codes.some((code) => code !== 0)) throw new Error(`${locker.name}: exit codes ${codes.join(' ')}`);
  const times = readFileSync(log, 'utf8').trimEnd().split('\n').map(Number);
  rmSync(folder, { recursive: true });
  const gaps = times.slice(1).map((time, at) => (time - times[at]!) / 1e6);
  return { percent, handoffMs: gaps.sort((a, b) => a - b)[gaps.length >> 1]! };
}

/** User and system time of these processes, so far. */
function cpuMs(children: readonly ChildProcess[]): number {
  return children.reduce((sum, { pid }) => {
    const stat = readFileSync(`/proc/${pid}/stat`, 'latin1');
    const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
    return sum + (Number(fields[11]) + Number(fields[12])) * TICK_MS;
  }, 0);
}
