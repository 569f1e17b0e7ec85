/** One node of a Redlock, asked directly: what it accepts, renews and gives back. */
import type { Redis } from 'ioredis';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { EXTEND, FREE, VOTE } from '../../../src/engines/redis/redlock/protocol.js';
import { portOf } from '../../../src/engines/redis/client/port-of.js';
import type { RedisPort } from '../../../src/engines/redis/client/port.js';
import { startRedis } from '../../servers/redis.js';
import type { Server } from '../../servers/server.js';
import { connect } from './faults-kit.js';

const TTL_MS = 60_000;
const TOLERANCE_US = 10_000_000;
const REMEMBER_MS = 3 * TTL_MS;

let server: Server;
let client: Redis & Disposable;
let port: RedisPort;

beforeAll(async () => {
  server = await startRedis();
  client = connect(server.port);
  port = portOf(client);
});

afterAll(async () => {
  client[Symbol.dispose]();
  await server.stop();
});

interface Proposal {
  readonly key: string;
  readonly owner: string;
  readonly token: number;
}

function keysOf(key: string): string[] {
  return [key, `ballot:${key}`];
}

async function vote({ key, owner, token }: Proposal, guard = false): Promise<string> {
  const words = [owner, token, TTL_MS, TOLERANCE_US, REMEMBER_MS, guard ? 1 : 0].map(String);
  const [what] = (await port.run(VOTE, keysOf(key), words)) as string[];
  return what!;
}

async function extend({ key, owner, token }: Proposal): Promise<unknown> {
  return port.run(EXTEND, keysOf(key), [TTL_MS, REMEMBER_MS, owner, token].map(String));
}

async function free({ key, owner }: Proposal, highestToken = ''): Promise<unknown> {
  return port.run(FREE, [key], [owner, '', highestToken]);
}

/** By the node's clock. */
async function nowUs(): Promise<number> {
  const [seconds, microseconds] = (await client.time()).map(Number);
  return seconds! * 1_000_000 + microseconds!;
}

describe.concurrent('a token', () => {
  test('is accepted once: whoever comes with the same one is too low, though the lock is free again', async () => {
    const first = { key: 'same', owner: 'one-1', token: await nowUs() };
    expect(await vote(first)).toBe('yes');
    expect(await free(first)).toBe(1);
    const second = { ...first, owner: 'two-1' };
    expect(await vote(second)).toBe('low');
    expect(await vote({ ...second, token: first.token - 1 })).toBe('low');
    expect(await client.exists('same')).toBe(0);
    expect(await vote({ ...second, token: first.token + 1 })).toBe('yes');
  });

  test.each([
    ['ahead of', 1],
    ['behind', -1],
  ])('far %s the clock of the node is refused, and nothing of it is remembered', async (where, sign) => {
    const key = `far-${where}`;
    const token = (await nowUs()) + sign * 2 * TOLERANCE_US;
    expect(await vote({ key, owner: 'one-1', token })).toBe('clock');
    expect(await client.exists(...keysOf(key))).toBe(0);
  });

  test('is refused by a node that has just started, and nothing of it is remembered', async () => {
    const proposal = { key: 'young', owner: 'one-1', token: await nowUs() };
    expect(await vote(proposal, true)).toBe('young');
    expect(await client.exists(...keysOf('young'))).toBe(0);
    expect(await vote(proposal, false)).toBe('yes');
  });
});

describe.concurrent('a lock', () => {
  // Serials are numbers at the end of an id: the first claim's id is what the tenth's begins with.
  test.each([
    ['one-10', 'one-1'],
    ['one-1', 'one-10'],
    ['one-1', 'two-1'],
  ])('of %s is not freed, renewed or taken by %s', async (owner, stranger) => {
    const own = { key: `owned-${owner}-${stranger}`, owner, token: await nowUs() };
    expect(await vote(own)).toBe('yes');
    const other = { ...own, owner: stranger, token: own.token + 1 };
    expect(await free(other)).toBe(0);
    expect(await extend(other)).toEqual([0]);
    expect(await vote(other)).toBe('busy');
    expect(await client.get(own.key)).toBe(`${owner}:${own.token}`);
  });

  test('that the node has forgotten is set again, which is said to be no renewal', async () => {
    const own = { key: 'forgotten', owner: 'one-1', token: await nowUs() };
    await vote(own);
    expect(await extend(own)).toEqual([1]);
    await client.del(own.key);
    expect(await extend(own)).toEqual([2]);
    expect(await client.get(own.key)).toBe(`one-1:${own.token}`);
    expect(await client.pttl(own.key)).toBeGreaterThan(0);
  });

  test('that another has had since is not set again', async () => {
    const own = { key: 'outvoted', owner: 'one-1', token: await nowUs() };
    const next = { ...own, owner: 'two-1', token: own.token + 1 };
    await vote(own);
    await client.del(own.key);
    expect(await vote(next)).toBe('yes');
    await free(next);
    expect(await extend(own)).toEqual([0]);
    expect(await client.exists(own.key)).toBe(0);
  });

  test('that a later try of its owner got is not given back with an earlier one', async () => {
    const early = { key: 'late', owner: 'one-1', token: await nowUs() };
    const late = { ...early, token: early.token + 1 };
    await vote(late);
    expect(await free(early, `${early.token}`)).toBe(0);
    expect(await client.get('late')).toBe(`one-1:${late.token}`);
    expect(await free(late, `${late.token}`)).toBe(1);
  });
});
