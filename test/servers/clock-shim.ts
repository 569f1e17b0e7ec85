/**
 * Lets the clocks of one server jump while it runs. The jumps are written into a file that clock-shim.c, preloaded into
 * the server, has mapped into its memory.
 *
 *     using clock = (await clockShim()) ?? skip(`no clock shim: it needs ${CLOCK_SHIM_NEEDS}`);
 *     await using redis = await startRedis({ env: clock.env });
 *     clock.jumpWall(30_000);
 *
 * Redis expires keys by the wall clock, memcached by the monotonic one. A monotonic clock never goes back, and programs
 * rely on it: Node.js aborts.
 */
import { execFile } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { closeSync, openSync, rmSync, writeSync } from 'node:fs';
import { mkdir, mkdtemp, rename, rm, stat, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';

const SOURCE = fileURLToPath(new URL('clock-shim.c', import.meta.url));
const LIBRARY = fileURLToPath(new URL(`../../.cache/clock-shim/clock-shim-${process.arch}.so`, import.meta.url));
const NS_PER_MS = 1_000_000;

/** For tests that skip without it. */
export const CLOCK_SHIM_NEEDS = 'Linux and a C compiler named cc';

export interface ClockShimOptions {
  /** Where it is built. Default: in .cache of the checkout (git-ignored). */
  readonly library?: string;
}

/** For one server; undefined where it can't be built. */
export async function clockShim({ library = LIBRARY }: ClockShimOptions = {}): Promise<ClockShim | undefined> {
  if (process.platform !== 'linux' || !(await build(library))) return undefined;
  const folder = await mkdtemp(join(tmpdir(), 'holdfast-clock-'));
  await writeFile(join(folder, 'offsets'), new BigInt64Array(2));
  return new ClockShim(library, folder);
}

export class ClockShim {
  /** For the server whose clocks are to jump. */
  readonly env: Readonly<Record<string, string>>;
  readonly #folder: string;
  readonly #file: number;
  readonly #offsetsNs = new BigInt64Array(2);

  constructor(library: string, folder: string) {
    const offsets = join(folder, 'offsets');
    const others = process.env['LD_PRELOAD'] ?? '';
    this.env = { HOLDFAST_CLOCK: offsets, LD_PRELOAD: others === '' ? library : `${library}:${others}` };
    this.#folder = folder;
    this.#file = openSync(offsets, 'r+');
  }

  /** From where it is now; negative jumps go back. */
  jumpWall(ms: number): void {
    this.#jump(0, ms);
  }

  /** From where it is now. */
  jumpMonotonic(ms: number): void {
    this.#jump(1, ms);
  }

  /** After the server has stopped: one that is restarted looks for the file again. */
  [Symbol.dispose](): void {
    closeSync(this.#file);
    rmSync(this.#folder, { recursive: true, force: true });
  }

  #jump(index: 0 | 1, ms: number): void {
    this.#offsetsNs[index] = (this.#offsetsNs[index] ?? 0n) + BigInt(Math.round(ms * NS_PER_MS));
    writeSync(this.#file, this.#offsetsNs, 0, this.#offsetsNs.byteLength, 0);
  }
}

/** False when there is no compiler. Other processes may build at the same time: each makes a file of its own. */
async function build(library: string): Promise<boolean> {
  const [source, found] = await Promise.all([stat(SOURCE), stat(library).catch(() => undefined)]);
  if (found !== undefined && found.mtimeMs >= source.mtimeMs) return true;
  await mkdir(dirname(library), { recursive: true });
  const built = `${library}.${randomUUID()}`;
  try {
    await promisify(execFile)('cc', ['-O2', '-shared', '-fPIC', '-o', built, SOURCE]);
    await rename(built, library);
    return true;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return false;
    throw error;
  } finally {
    await rm(built, { force: true });
  }
}
