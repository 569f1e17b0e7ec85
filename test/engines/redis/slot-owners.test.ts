/** plain and hash: what is asked of the server about one claim has no effect on the lock of another. */
import type { Redis } from 'ioredis';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { Claim } from '../../../src/core/engine.js';
import { ALL } from '../../../src/core/line.js';
import { hash } from '../../../src/engines/redis/slots/hash.js';
import { plain } from '../../../src/engines/redis/slots/plain.js';
import { portOf } from '../../../src/engines/redis/client/port-of.js';
import { RedisSlots } from '../../../src/engines/redis/slots/store.js';
import { SlotWatches } from '../../../src/engines/redis/slots/watches.js';
import { startRedis } from '../../servers/redis.js';
import type { Server } from '../../servers/server.js';
import { connect } from './faults-kit.js';

const TTL_MS = 60_000;
const LONG_TTL_MS = 2 * TTL_MS;
const INSTANCE = '0123456789abcdef0123456789abcdef';

let server: Server;
let client: Redis & Disposable;

beforeAll(async () => {
  server = await startRedis();
  client = connect(server.port);
});

afterAll(async () => {
  client[Symbol.dispose]();
  await server.stop();
});

function claimOf(key: string, serial: number): Claim {
  return {
    id: `${INSTANCE}-${serial}`,
    serial,
    line: { kind: 'lock', name: key },
    weight: ALL,
    capacity: ALL,
    wait: false,
    note: '',
  };
}

describe.concurrent.each([
  ['plain', plain],
  ['hash', hash],
])('%s: a lock', (strategy, protocol) => {
  const stored = (ttlMs = TTL_MS): RedisSlots => {
    const port = portOf(client);
    return new RedisSlots({ port, protocol, keyOf: (name) => name, watches: new SlotWatches(port), ttlMs });
  };
  const stateOf = async (key: string): Promise<unknown> =>
    strategy === 'plain' ? client.get(key) : client.hgetall(key);

  // Serials are numbers at the end of an id: the first claim's id is what the tenth's begins with.
  test.each([
    [10, 1],
    [1, 10],
    [1, 2],
  ])('of claim %d is not taken, renewed or freed by claim %d', async (ownSerial, otherSerial) => {
    const key = `${strategy}-${ownSerial}-${otherSerial}`;
    const [own, other] = [claimOf(key, ownSerial), claimOf(key, otherSerial)];
    const { token } = await stored().take(own);
    const before = await stateOf(key);
    expect(await stored().drop(other)).toBe(false);
    expect(await stored(LONG_TTL_MS).keep([{ ...other, token: token! }])).toEqual([other.id]);
    expect(await stored().take(other)).toEqual({ freeInMs: expect.any(Number) as number });
    expect(await stateOf(key)).toEqual(before);
    expect(await client.pttl(key)).toBeLessThanOrEqual(TTL_MS);
    expect(await stored().drop(own)).toBe(true);
  });

  test('that is asked for again is the same one, and renewed', async () => {
    const key = `${strategy}-again`;
    const claim = claimOf(key, 1);
    const { token } = await stored().take(claim);
    const before = await stateOf(key);
    expect(await stored(LONG_TTL_MS).take(claim)).toEqual({ token });
    expect(await stateOf(key)).toEqual(before);
    expect(await client.pttl(key)).toBeGreaterThan(TTL_MS);
  });

  test('ends by itself if nobody renews it, and later if somebody does', async () => {
    const key = `${strategy}-ends`;
    const claim = claimOf(key, 1);
    const { token } = await stored().take(claim);
    expect(await client.pttl(key)).toBeGreaterThan(0);
    expect(await stored(LONG_TTL_MS).keep([{ ...claim, token: token! }])).toEqual([]);
    expect(await client.pttl(key)).toBeGreaterThan(TTL_MS);
  });

  test('that is gone is not brought back by a renewal, which says so', async () => {
    const key = `${strategy}-gone`;
    const claim = claimOf(key, 1);
    const { token } = await stored().take(claim);
    await client.del(key);
    expect(await stored().keep([{ ...claim, token: token! }])).toEqual([claim.id]);
    expect(await client.exists(key)).toBe(0);
  });

  test('among many that are renewed at once is the only one that is said to be lost', async () => {
    const claims = Array.from({ length: 250 }, (_, at) => claimOf(`${strategy}-many-${at}`, at));
    const taken = await Promise.all(claims.map((claim) => stored().take(claim)));
    const slots = claims.map((claim, at) => ({ ...claim, token: taken[at]!.token! }));
    await client.del(`${strategy}-many-123`);
    expect(await stored().keep(slots)).toEqual([claims[123]!.id]);
  });
});
