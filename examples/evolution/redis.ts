/** What the chapters on Redis share. */
import { Redis } from 'ioredis';
import { Holdfast } from '../../src/index.js';
import { until } from '../../test/servers/lines.js';
import { LOOPBACK } from '../../test/servers/ports.js';
import { command, info } from '../../test/servers/resp.js';

interface At {
  readonly port: number;
}

/** The shortest that Holdfast takes; its locks here expire after it. */
export const TTL_MS = 1_000;

/** A client that sends nothing twice by itself, and gives up at once where there is no server. */
export function clientOf({ port }: At): Redis & Disposable {
  const client = new Redis({ host: LOOPBACK, port, maxRetriesPerRequest: 0, retryStrategy: () => 20 });
  client.on('error', () => {});
  return Object.assign(client, { [Symbol.dispose]: () => client.disconnect() });
}

/** The same client, but each such command waits for `before`: this is how an interleaving is forced. */
export function heldBack(
  client: Redis,
  name: 'del' | 'eval' | 'expire' | 'set' | 'setnx',
  before: () => unknown,
): Redis {
  const send = client[name].bind(client) as (...args: unknown[]) => Promise<unknown>;
  return Object.assign(Object.create(client) as Redis, {
    [name]: async (...args: unknown[]) => {
      await before();
      return send(...args);
    },
  });
}

export async function isGone(client: Redis, key: string): Promise<void> {
  await until(`${key} has expired`, async () => (await client.exists(key)) === 0);
}

/** Without the guard that a server which was just started would have: the chapter on failover is about that. */
export function holdfastOn({ port }: At, label: string, ttl = TTL_MS): Holdfast {
  return new Holdfast(`redis://${LOOPBACK}:${port}?epochGuard=false`, { ttl, label });
}

/** A Redis without anything that an earlier chapter left. */
export async function emptied<Server extends At>(server: Server): Promise<Server> {
  await command(server.port, 'FLUSHALL');
  return server;
}

/** Counts what this client sends from now on. */
export function countRequests(client: Redis): { readonly requests: number } {
  const count = { requests: 0 };
  const send = client.sendCommand.bind(client);
  client.sendCommand = (...args) => {
    count.requests += 1;
    return send(...args);
  };
  return count;
}

/** Waits until a server has been up for so long that its guard is over. */
export async function aged({ port }: At, seconds: number): Promise<void> {
  await until(`a Redis is ${seconds} s old`, async () => {
    const server = await info(port, 'INFO', 'server');
    return Number(server.get('uptime_in_seconds')) >= seconds;
  });
}
