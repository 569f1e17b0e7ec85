/** What the tests of etcd share. */
import { etcd } from '../../../src/engines/etcd/index.js';
import { EtcdClient } from '../../../src/engines/etcd/client/client.js';
import type { Engine } from '../../../src/index.js';
import { systemClock } from '../../../src/core/clock.js';
import { LOOPBACK } from '../../servers/ports.js';

export { queued, renewed, standing, until } from '../../servers/lines.js';

interface At {
  readonly port: number;
}

export function urlOf(...servers: readonly At[]): string {
  return `etcd://${servers.map(({ port }) => `${LOOPBACK}:${port}`).join(',')}`;
}

/** A client of our own, beside the one under test. */
export function clientOf(...servers: readonly At[]): EtcdClient & Disposable {
  const members = servers.map(({ port }) => ({ host: LOOPBACK, port }));
  const client = new EtcdClient({ members, random: () => 0 });
  return Object.assign(client, { [Symbol.dispose]: () => client.close() });
}

/** The raw engine. */
export function engineOf(server: At, namespace: string): Promise<Engine> {
  return etcd(urlOf(server)).connect({ namespace, clock: systemClock });
}
