/**
 * A process that uses a server of the test's, which answers as it likes. What that costs is measured where nothing else is: the
 * memory and the event loop of the test itself are full of what it sends.
 */
import { execFile } from 'node:child_process';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { expect } from 'vitest';

export interface Victim {
  /** What became of each acquire: the code of its error, or `held`. */
  readonly outcomes: readonly string[];
  readonly messages: readonly string[];
  /** How much more memory the process had at its peak than before it asked, in MiB. */
  readonly grownMiB: number;
  /** The longest time that nothing else could run, in milliseconds. */
  readonly blockedMs: number;
  /** What Node.js complained about. */
  readonly warnings: number;
}

const SCRIPT = `
import { Holdfast } from 'holdfast';
import { monitorEventLoopDelay } from 'node:perf_hooks';
const times = Number(process.env.TIMES);
let warnings = 0;
process.on('warning', () => (warnings += 1));
const locks = new Holdfast(process.env.LOCKS, { ttl: '3s' });
const delay = monitorEventLoopDelay({ resolution: 5 });
const peak = () => process.resourceUsage().maxRSS / 1024;
const [outcomes, messages] = [[], []];
const before = peak();
delay.enable();
for (let time = 0; time < times; time += 1) {
  try {
    const lease = await locks.mutex('a').acquire({ timeout: '2s' });
    outcomes.push('held');
    await new Promise((resolve) => {
      // A timer keeps the process alive; a lease does not.
      const timer = setTimeout(resolve, Number(process.env.STAY ?? 10_000));
      lease.signal.addEventListener('abort', () => (clearTimeout(timer), resolve()), { once: true });
    });
  } catch (error) {
    outcomes.push(error.code ?? String(error));
    messages.push(error.message);
  }
}
if (process.env.STAY) await new Promise((resolve) => setTimeout(resolve, Number(process.env.STAY)));
await locks.close({ drain: 0 });
console.log(JSON.stringify({ outcomes, messages, grownMiB: peak() - before, blockedMs: delay.max / 1e6, warnings }));
`;

export interface Wanted {
  /** How often it asks for the lock. Default: once. */
  readonly times?: number;
  /** For how long it does nothing afterwards, in milliseconds. Also the longest that it keeps the lock. */
  readonly stayMs?: number;
}

export async function victimOf(url: string, { times = 1, stayMs }: Wanted = {}): Promise<Victim> {
  const env = { LOCKS: url, TIMES: `${times}`, ...(stayMs !== undefined && { STAY: `${stayMs}` }) };
  const { stdout } = await promisify(execFile)(process.execPath, ['--input-type=module', '-e', SCRIPT], {
    cwd: join(import.meta.dirname, '../../..'),
    env: { ...process.env, ...env },
    timeout: 120_000,
    killSignal: 'SIGKILL',
  });
  return JSON.parse(stdout) as Victim;
}

/** A machine that is busy with other things may keep a process waiting for a second. */
const NEVER_BLOCKED_MS = 4_000;
const MOST_MIB = 64;

export function expectHarmless({ grownMiB, blockedMs, warnings }: Victim): void {
  expect(grownMiB).toBeLessThan(MOST_MIB);
  expect(blockedMs).toBeLessThan(NEVER_BLOCKED_MS);
  expect(warnings).toBe(0);
}
