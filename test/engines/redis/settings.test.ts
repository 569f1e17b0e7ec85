/** Settings of a server that locks could trip over, by strategy. What comes of each stands in docs/engines/redis.md. */
import { Redis } from 'ioredis';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { systemClock } from '../../../src/core/clock.js';
import { redis, redlock } from '../../../src/engines/redis/index.js';
import type { EngineSource } from '../../../src/index.js';
import { Actor } from '../../../src/conformance/protocol.js';
import { LOOPBACK } from '../../servers/ports.js';
import { startRedis } from '../../servers/redis.js';
import { command } from '../../servers/resp.js';
import type { Server } from '../../servers/server.js';
import { cellOf, expectDocumented, outcomeFor } from '../settings-table.js';
import { until, urlOf } from './faults-kit.js';

let servers: readonly Server[];

beforeAll(async () => {
  servers = await Promise.all([startRedis(), startRedis(), startRedis()]);
});

afterAll(() => Promise.all(servers.map((server) => server.stop())));

/** On a client, and by URL where there is one; Redlock on all three servers. */
const STRATEGIES: Readonly<Record<string, (clients: readonly Redis[]) => readonly [EngineSource, EngineSource]>> = {
  queue: ([client]) => [redis(client!, { epochGuard: false }), redis(urlOf(servers[0]!.port))],
  plain: ([client]) => [redis(client!, { strategy: 'plain' }), redis(urlOf(servers[0]!.port), { strategy: 'plain' })],
  hash: ([client]) => [redis(client!, { strategy: 'hash' }), redis(urlOf(servers[0]!.port), { strategy: 'hash' })],
  redlock: (clients) => [redlock(clients, { epochGuard: false }), redlock(clients, { epochGuard: false })],
};

interface Odd {
  readonly name: string;
  readonly value: string;
  /** What an error has to say, where it can't be harmless. */
  readonly named?: string;
  readonly pause?: () => Promise<void>;
}

const ODD: readonly Odd[] = [
  { name: 'timeout', value: '1', pause: endedWhileIdle },
  { name: 'busy-reply-threshold', value: '1' },
  { name: 'appendonly', value: 'yes' },
  { name: 'maxmemory-policy', value: 'allkeys-random' },
  { name: 'notify-keyspace-events', value: 'KEA' },
  { name: 'lazyfree-lazy-user-del', value: 'yes' },
  { name: 'hash-max-listpack-entries', value: '0' },
  { name: 'zset-max-listpack-entries', value: '0' },
  { name: 'min-replicas-to-write', value: '1', named: 'NOREPLICAS' },
  { name: 'maxmemory', value: '1', named: 'maxmemory' },
];

/** Of those who were connected, nobody is. */
async function endedWhileIdle(): Promise<void> {
  for (const { port } of servers) {
    const before = await clientsOf(port);
    await until('idle connections are ended', async () => {
      const now = await clientsOf(port);
      return before.every((id) => !now.includes(id));
    });
  }
}

async function clientsOf(port: number): Promise<readonly string[]> {
  const list = String(await command(port, 'CLIENT', 'LIST', 'TYPE', 'normal'));
  return [...list.matchAll(/^id=(\d+)/gm)].map((match) => match[1]!);
}

async function outcome(strategy: string, { name, pause }: Odd): Promise<string> {
  const closing: (() => unknown)[] = [];
  const clients = servers.map(({ port }) => {
    const client = new Redis({ host: LOOPBACK, port });
    // Without a listener ioredis prints what the test does on purpose.
    client.on('error', () => {});
    closing.push(() => client.disconnect());
    return client;
  });
  const open = async (source: EngineSource): Promise<Actor> => {
    const engine = await source.connect({ namespace: `${strategy} ${name}`, clock: systemClock });
    closing.push(() => engine[Symbol.asyncDispose]());
    const session = { id: systemClock.id(), realm: '', ttlMs: 600_000, label: 'actor' };
    const actor = await Actor.open(engine, session, systemClock.id());
    closing.push(() => actor.session.close().catch(() => {}));
    return actor;
  };
  try {
    const [first, second] = STRATEGIES[strategy]!(clients);
    return await outcomeFor(async () => [await open(first), await open(second)], pause);
  } finally {
    for (const close of closing.toReversed()) await close();
  }
}

/** A connection that the server ends in the moment in which it is used is an error once, and the core asks again. So do we. */
async function lastOutcome(strategy: string, odd: Odd): Promise<string> {
  let said = await outcome(strategy, odd);
  for (let again = 0; again < 5 && odd.pause && said !== 'works'; again += 1) said = await outcome(strategy, odd);
  return said;
}

const rows: string[][] = [];

test.each(ODD)('$name = $value', async (odd) => {
  const { name, value, named } = odd;
  const [, usual = ''] = (await command(servers[0]!.port, 'CONFIG', 'GET', name)) as string[];
  for (const { port } of servers) await command(port, 'CONFIG', 'SET', name, value);
  const outcomes = await Promise.all(Object.keys(STRATEGIES).map((strategy) => lastOutcome(strategy, odd)));
  for (const { port } of servers) await command(port, 'CONFIG', 'SET', name, usual);
  rows.push([`\`${name} ${value}\``, ...outcomes.map(cellOf)]);
  for (const said of outcomes) {
    if (named === undefined) expect(said).toBe('works');
    else expect(said).toMatch(new RegExp(`^EngineError: .*${named}`));
  }
});

test('docs/engines/redis.md says what was found', () => expectDocumented('redis', rows));
