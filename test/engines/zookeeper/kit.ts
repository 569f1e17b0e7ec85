/** What the tests of ZooKeeper share. */
import { systemClock } from '../../../src/core/clock.js';
import type { ClientListener } from '../../../src/engines/zookeeper/client/attachment.js';
import { ZooKeeperClient } from '../../../src/engines/zookeeper/client/client.js';
import { zookeeper } from '../../../src/engines/zookeeper/index.js';
import type { Engine } from '../../../src/index.js';
import { WITHIN_MS } from '../../servers/lines.js';
import { LOOPBACK } from '../../servers/ports.js';

export { queued, renewed, standing, until } from '../../servers/lines.js';

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
