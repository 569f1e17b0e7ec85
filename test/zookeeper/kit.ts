/** What the tests of ZooKeeper share. */
import { systemClock } from '../../src/core/clock.js';
import { type ClientListener, ZooKeeperClient } from '../../src/engines/zookeeper/client/client.js';
import { zookeeper } from '../../src/engines/zookeeper/index.js';
import type { Engine, Lease, Lock } from '../../src/index.js';
import { LOOPBACK } from '../servers/ports.js';
import { waitFor } from '../servers/wait.js';

/** What takes longer than this on a busy machine does not happen. */
const WITHIN_MS = 40_000;

interface At {
  readonly port: number;
}

export function urlOf(...servers: readonly At[]): string {
  return `zookeeper://${servers.map(({ port }) => `${LOOPBACK}:${port}`).join(',')}`;
}

interface ClientSetup {
  readonly timeoutMs?: number;
  readonly pings?: boolean;
  readonly digest?: string;
  readonly chroot?: string;
  readonly listener?: ClientListener;
}

/** A client of our own, beside the one under test. It begins with the first server. */
export async function clientOf(
  servers: At | readonly At[],
  setup: ClientSetup = {},
): Promise<ZooKeeperClient & AsyncDisposable> {
  const { timeoutMs = 10_000, pings = true, ...rest } = setup;
  const addresses = [servers].flat().map(({ port }) => ({ host: LOOPBACK, port }));
  const client = new ZooKeeperClient({ servers: addresses, timeoutMs, pings, random: () => 0, ...rest });
  await client.open(WITHIN_MS);
  return Object.assign(client, { [Symbol.asyncDispose]: () => client.close() });
}

/** The raw engine. */
export function engineOf(server: At, namespace: string): Promise<Engine> {
  return zookeeper(urlOf(server)).connect({ namespace, clock: systemClock });
}

/** Waits for a condition; fails with its name when it does not come true. */
export async function until(what: string, condition: () => boolean | Promise<boolean>): Promise<void> {
  if (!(await waitFor(condition, WITHIN_MS))) throw new Error(`not in ${WITHIN_MS} ms: ${what}`);
}

/** How many claims of each kind stand in a lock's line. */
export async function standing(lock: Lock): Promise<{ held: number; waiting: number }> {
  const { claims } = await lock.inspect();
  const held = claims.filter(({ state }) => state === 'held').length;
  return { held, waiting: claims.length - held };
}

export async function queued(lock: Lock, waiting: number): Promise<void> {
  await until(`${waiting} claims wait for ${lock.name}`, async () => (await standing(lock)).waiting === waiting);
}

/** Waits until a beat has renewed a lease that is held: nothing else lets its validity grow. */
export async function renewed(lease: Lease): Promise<void> {
  let before = lease.remaining;
  await until(`a beat renews the lease on ${lease.name}`, () => {
    const grew = lease.remaining > before;
    before = lease.remaining;
    return grew;
  });
}
