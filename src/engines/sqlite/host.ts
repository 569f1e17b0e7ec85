/**
 * Who we are on this machine, and whether another process of it is still alive: pid, start time and pid namespace
 * together, because pids are used again and mean nothing in another namespace. Where one of them can't be read, nobody
 * is judged by it, and the ttl decides. Nor where /proc is that of another pid namespace (`unshare --pid` without
 * `--mount-proc`): there our pids are other processes.
 */
import { readFileSync, readlinkSync } from 'node:fs';
import { uptime } from 'node:os';
import { Date, hrtime } from '../../core/real-time.js';

export interface Host {
  /** Changes with every boot: monotonic times of another boot can't be compared with ours. */
  readonly bootId: string;
  readonly pid: number;
  readonly pidNamespace: string | undefined;
  /** Absent: no process can be judged from here. */
  readonly startTime: string | undefined;
}

export const host: Host = {
  bootId: readBootId(),
  pid: process.pid,
  pidNamespace: attempt(() => readlinkSync('/proc/self/ns/pid')),
  startTime: startTimeOf('self', process.pid),
};

/** The same for all processes of a boot: Node's high-resolution time is the system's monotonic clock. */
export function monotonicMs(): number {
  return Number(hrtime.bigint() / 1_000n) / 1_000;
}

/** True only if it is certain: the process has ended, or its pid belongs to a younger one. */
export function isDead(other: Host, us = host): boolean {
  if (other.bootId !== us.bootId || !other.startTime || !other.pidNamespace) return false;
  if (!us.startTime || other.pidNamespace !== us.pidNamespace) return false;
  const startTime = startTimeOf(`${other.pid}`, other.pid);
  if (startTime !== undefined) return startTime !== other.startTime;
  return !exists(other.pid);
}

function startTimeOf(entry: string, pid: number): string | undefined {
  const stat = attempt(() => readFileSync(`/proc/${entry}/stat`, 'utf8'));
  return stat === undefined ? undefined : startTimeIn(stat, pid);
}

/**
 * Field 22 of stat, in ticks since boot. The name in field 2 may contain anything, so count from its last bracket. Field 1 is
 * the pid as this /proc counts: if it is another, that is not the /proc of our pid namespace.
 */
export function startTimeIn(stat: string, pid: number): string | undefined {
  if (!stat.startsWith(`${pid} `)) return undefined;
  const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
  // A zombie holds nothing any more: it only waits to be collected.
  return fields[0] === 'Z' ? 'zombie' : fields[19];
}

function exists(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    return (error as { code?: string }).code !== 'ESRCH';
  }
}

function readBootId(): string {
  const linux = attempt(() => readFileSync('/proc/sys/kernel/random/boot_id', 'utf8').trim());
  // Elsewhere the time of boot, to ten seconds. A wrong guess only makes a session look foreign: then it is observed.
  return linux ?? `boot:${Math.round((Date.now() / 1_000 - uptime()) / 10)}`;
}

function attempt<T>(read: () => T): T | undefined {
  try {
    return read();
  } catch {
    return undefined;
  }
}
