/** The conformance suite on every client library. It takes minutes, so it runs for `npm run test:matrix` only. */
import { afterAll, test } from 'vitest';
import { redis } from '../../src/engines/redis/index.js';
import { conformance } from '../../src/conformance/index.js';
import { type Connected, REDIS_CLIENTS, type RedisClients } from './redis-clients.js';

export interface Topology {
  readonly name: string;
  start(): Promise<{ connect(clients: RedisClients): Promise<Connected>; stop(): Promise<void> }>;
}

/** The engine is made of a connected client while the cases are registered, so everything starts before them. */
export async function onEveryClient(topology: Topology): Promise<void> {
  const servers = await topology.start();
  const connected: Connected[] = [];
  afterAll(async () => {
    for (const one of connected) one.close();
    await servers.stop();
  });
  for (const clients of REDIS_CLIENTS) {
    const one = await servers.connect(clients);
    connected.push(one);
    for (const strategy of ['queue', 'plain', 'hash'] as const)
      conformance({
        test: test.concurrent,
        engine: `${topology.name}, ${clients.name}, ${strategy}`,
        source: () => redis(one.client, { strategy, epochGuard: false }),
      });
  }
}
