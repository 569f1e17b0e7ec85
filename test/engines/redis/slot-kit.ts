/** What the tests of `plain` and `hash` share. */
import { type ChildProcess, fork } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { redis, type RedisOptions, type RedisStrategy } from '../../../src/engines/redis/index.js';
import { portOf } from '../../../src/engines/redis/client/port-of.js';
import { SlotEngine } from '../../../src/engines/redis/slots/engine.js';
import type { SlotProtocol } from '../../../src/engines/redis/slots/store.js';
import { hashTraits } from '../../../src/engines/redis/traits.js';
import { Holdfast, type HoldfastOptions } from '../../../src/index.js';
import { LOOPBACK } from '../../servers/ports.js';
import { command, info } from '../../servers/resp.js';
import type { PeerName } from './slot-peers.mjs';

export type SlotOptions = HoldfastOptions & Pick<RedisOptions, 'strategy' | 'key'>;

/** By a URL. The key of a lock is its name, unless said otherwise. */
export function slotLocks(port: number, { strategy, key = (name) => name, ...options }: SlotOptions): Holdfast {
  const source = redis(`redis://${LOOPBACK}:${port}`, { key, ...(strategy && { strategy }) });
  return new Holdfast(source, { ttl: '6s', ...options });
}

const NEVER_MS = 24 * 3_600_000;

/** One who never asks for a lock that is busy, unless a message wakes it. */
export function locksWithoutPolling(client: object, protocol: SlotProtocol): Holdfast {
  const silent = { ...protocol, pace: { firstMs: NEVER_MS, mostMs: NEVER_MS } };
  const source = {
    traits: hashTraits,
    connect: async (setup: ConstructorParameters<typeof SlotEngine>[3]) =>
      new SlotEngine(portOf(client), silent, (name) => name, setup),
  };
  return new Holdfast(source, { ttl: '60s' });
}

/** How many scripts clients have called: what a script calls is counted under its own name. */
export async function scriptCalls(port: number): Promise<number> {
  const stats = await info(port, 'INFO', 'commandstats');
  const counts = ['cmdstat_eval', 'cmdstat_evalsha'].map((name) => /calls=(\d+)/.exec(stats.get(name) ?? '')?.[1]);
  return counts.reduce((sum, count) => sum + Number(count ?? 0), 0);
}

export async function exists(port: number, key: string): Promise<boolean> {
  return (await command(port, 'EXISTS', key)) === 1;
}

export async function listenersOf(port: number, channel: string): Promise<number> {
  const answer = await command(port, 'PUBSUB', 'NUMSUB', channel);
  return Array.isArray(answer) ? Number(answer[1]) : 0;
}

/** What a process of its own does: slot-worker.mjs. */
export interface SlotWork {
  /** A strategy of ours, or another library. */
  readonly library: RedisStrategy | PeerName;
  readonly port: number;
  readonly ttlMs: number;
  /** By what name the library gets to the key. */
  readonly name: string;
  readonly key: string;
  readonly file?: string;
  readonly times?: number;
}

export function startWorker(work: SlotWork): ChildProcess {
  return fork(join(import.meta.dirname, 'slot-worker.mjs'), [JSON.stringify(work)]);
}

/**
 * Lets a process for each of these count in one file under one lock, and answers where they came to.
 */
export async function countTogether<Kind extends SlotWork['library']>(
  kinds: readonly Kind[],
  work: Omit<SlotWork, 'library' | 'name'>,
  nameOf: (kind: Kind) => string,
): Promise<number> {
  const folder = await mkdtemp(join(tmpdir(), 'holdfast-count-'));
  const file = join(folder, 'count');
  await writeFile(file, '0');
  const workers = kinds.map((kind) => startWorker({ ...work, library: kind, name: nameOf(kind), file }));
  try {
    const ends = await Promise.all(workers.map((worker) => once(worker, 'exit')));
    const failed = kinds.filter((_, at) => ends[at]?.[0] !== 0);
    if (failed.length > 0) throw new Error(`failed: ${failed.join()}`);
    return Number(await readFile(file, 'utf8'));
  } finally {
    for (const worker of workers) worker.kill('SIGKILL');
    await rm(folder, { recursive: true, force: true });
  }
}
