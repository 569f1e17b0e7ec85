/** Whoever may publish on the server can write into an inbox: nothing there costs anybody a process or a lock, or gives one away. */
import { Redis } from 'ioredis';
import { describe, expect, test } from 'vitest';
import { EngineError, Holdfast, type Lease } from '../../../src/index.js';
import { LOOPBACK } from '../../servers/ports.js';
import { startRedis } from '../../servers/redis.js';
import { command } from '../../servers/resp.js';
import type { Server } from '../../servers/server.js';
import { failureOf, lossOf, queued, renewed, until, urlOf } from './faults-kit.js';

test('messages that make no sense are passed over, and the next that does is heard', async () => {
  await using scene = await staged();
  for (const text of [
    '',
    'granted',
    ...['', ' ', ' many', ' 0x10'].map((end) => `granted ${scene.waitingId}${end}`),
    'x',
  ])
    await scene.publish(text);
  expect(await scene.lease.release()).toBe(true);
  const next = await scene.waiting;
  expect(next.token).toBeGreaterThan(scene.lease.token);
  expect(await next.release()).toBe(true);
});

test('a grant that somebody else has published is not believed', async () => {
  await using scene = await staged();
  const { waitingId, lease } = scene;
  for (const nonce of ['', ` ${'0'.repeat(32)}`, ` ${waitingId}`])
    for (const token of ['5', '0000000000000005', '9007199254740991'])
      await scene.publish(`granted ${waitingId} ${token}${nonce}`);
  await scene.heardAll();
  expect(scene.granted).toBe(false);
  expect(lease.held).toBe(true);
  await lease.release();
  expect((await scene.waiting).token).toBeGreaterThan(lease.token);
});

test('who has overheard the nonce of one grant can make no other', async () => {
  await using scene = await staged();
  const overheard: string[] = [];
  const ear = new Redis(scene.server.port, LOOPBACK);
  try {
    ear.on('message', (_channel: string, text: string) => void overheard.push(text));
    await ear.subscribe(...scene.inboxes);
    const other = await scene.holder.mutex('other').acquire();
    const second = scene.waiter.mutex('other').acquire();
    await queued(scene.holder.mutex('other'), 1);
    await other.release();
    await second;
    await until('the grant was overheard', () => overheard.length > 0);
    const [, , token, nonce] = overheard[0]!.split(' ');
    expect(nonce).toMatch(/^\S{16,}$/);
    await scene.publish(`granted ${scene.waitingId} ${token} ${nonce}`);
    await scene.heardAll();
    expect(scene.granted).toBe(false);
  } finally {
    ear.disconnect();
  }
});

test('that a claim was evicted is not believed, but looked up', async () => {
  await using scene = await staged();
  for (const id of [scene.heldId, scene.waitingId, 'nobody']) await scene.publish(`evicted ${id} because we say so`);
  await scene.heardAll();
  expect(scene.lease.held).toBe(true);
  expect(await scene.lease.release()).toBe(true);
  await scene.waiting;
});

test.each([
  ['state', 'SET'],
  ['order', 'SET'],
  ['state', 'HSET'],
])(
  'a key that somebody else has written (%s, %s) is named by the error, and deleted it is ours again',
  async (key, how) => {
    await using server = await startRedis();
    await using locks = new Holdfast(urlOf(server.port), { ttl: '2s' });
    await locks.mutex('job').run(() => {});
    const whole = `holdfast:{0}:${key}`;
    await (how === 'SET'
      ? command(server.port, 'SET', whole, 'garbage')
      : command(server.port, 'HSET', whole, 'shard', 'garbage'));
    const failure = await failureOf(locks.mutex('job').acquire({ timeout: '20s' }));
    expect(failure).toBeInstanceOf(EngineError);
    expect((failure as EngineError).message).toContain(`The key ${whole} holds what Holdfast did not write`);
    await command(server.port, 'DEL', whole);
    await locks.mutex('job').run({ timeout: '60s' }, () => {});
  },
);

test('a record of one lock that makes no sense costs no other lock', async () => {
  await using server = await startRedis();
  await using locks = new Holdfast(urlOf(server.port), { ttl: '60s' });
  const kept = await locks.mutex('kept').acquire();
  await command(server.port, 'HSET', 'holdfast:{0}:state', 'llodd', 'garbage');
  const [odd, fine] = await Promise.allSettled([locks.mutex('odd').acquire(), locks.mutex('fine').acquire()]);
  expect(odd).toMatchObject({ status: 'rejected', reason: { code: 'HOLDFAST_ENGINE', retryable: false } });
  expect(fine.status).toBe('fulfilled');
  expect(await kept.release()).toBe(true);
});

describe('what others add to our keys', () => {
  const SESSIONS = 'holdfast:{0}:sessions';
  const STATE = 'holdfast:{0}:state';
  const ORDER = 'holdfast:{0}:order';

  test('as sessions costs nobody a lock', async () => {
    await using server = await startRedis();
    await using locks = new Holdfast(urlOf(server.port), { ttl: '2s' });
    const lease = await locks.mutex('job').acquire();
    for (const [at, dies] of ['-inf', '0', '+inf', '1e300'].entries()) {
      await command(server.port, 'ZADD', SESSIONS, dies, `odd${at}`);
      await command(server.port, 'HSET', STATE, `sodd${at}`, 'garbage');
    }
    await renewed(lease);
    expect(await lease.release()).toBe(true);
  });

  test('with another score than ours hides nobody who waits', async () => {
    await using scene = await staged();
    for (const [score, member] of [
      [1, 'A'],
      [-1, 'zz'],
      [7, 'Lljob'],
    ] as const)
      await command(scene.server.port, 'ZADD', ORDER, score, member);
    expect(await scene.lease.release()).toBe(true);
    await scene.waiting;
  });

  test('in a line is not listed, and hides nobody who is', async () => {
    await using scene = await staged();
    const { port } = scene.server;
    await command(
      port,
      'ZADD',
      ORDER,
      0,
      'Lljob\n9999999999999999\nnobody',
      0,
      'Lljob\n9999999999999998\nodd',
      0,
      'Llodd\nx',
    );
    await command(port, 'HSET', STATE, 'codd', 'garbage', 'llodd', 'garbage');
    const lines: Record<string, number> = {};
    for await (const { name, claims } of scene.holder.inspect()) lines[name] = claims.length;
    expect(lines).toEqual({ job: 2, sentinel0: 1, sentinel1: 1 });
    expect(await scene.lease.release()).toBe(true);
    await scene.waiting;
  });
});

test.each(['c', 's', 'l'])('a record of the dead that was written over (%s) costs the living nothing', async (kind) => {
  await using server = await startRedis();
  await using locks = new Holdfast(urlOf(server.port), { ttl: '2s' });
  const lease = await locks.mutex('kept').acquire();
  const [ours] = (await command(server.port, 'ZRANGE', 'holdfast:{0}:sessions', 0, -1)) as string[];
  await using dying = new Holdfast(urlOf(server.port), { ttl: '60s' });
  await dying.mutex('odd').acquire();
  const [claim] = (await locks.mutex('odd').inspect()).claims;
  const sessions = (await command(server.port, 'ZRANGE', 'holdfast:{0}:sessions', 0, -1)) as string[];
  const session = sessions.find((id) => id !== ours)!;
  const field = { c: `c${claim!.id}`, s: `s${session}`, l: 'llodd' }[kind]!;
  await command(server.port, 'HSET', 'holdfast:{0}:state', field, 'garbage');
  await command(server.port, 'ZADD', 'holdfast:{0}:sessions', 'XX', 0, session);
  await renewed(lease);
  expect((await command(server.port, 'ZRANGE', 'holdfast:{0}:sessions', 0, -1)) as string[]).toEqual([ours]);
  expect(await lease.release()).toBe(true);
});

test.each(['plain', 'hash'])('garbage where %s remembers a token is written over', async (strategy) => {
  await using server = await startRedis();
  await using locks = new Holdfast(`${urlOf(server.port)}&strategy=${strategy}`);
  const memory = 'holdfast_token:{holdfast:job}';
  for (const garbage of ['odd', '-1', '99999999999999999999', '1e300', '']) {
    await command(server.port, 'SET', memory, garbage);
    await locks.mutex('job').run((lease) => expect(lease.token).toBeLessThan(2n ** 63n));
  }
  await command(server.port, 'DEL', memory);
  await command(server.port, 'LPUSH', memory, 'odd');
  await locks.mutex('job').run(() => {});
});

interface Scene extends AsyncDisposable {
  readonly server: Server;
  readonly holder: Holdfast;
  readonly waiter: Holdfast;
  readonly lease: Lease;
  readonly heldId: string;
  readonly waiting: Promise<Lease>;
  readonly waitingId: string;
  readonly granted: boolean;
  readonly inboxes: readonly string[];
  /** To both of them. */
  publish(text: string): Promise<void>;
  /** Both have heard what was published before: messages keep their order, and here comes one that shows. */
  heardAll(): Promise<void>;
}

/** One holds, another waits behind it, and neither has a beat to send for a long time. */
async function staged(): Promise<Scene> {
  const server = await startRedis();
  const [holder, waiter] = [0, 1].map(() => new Holdfast(urlOf(server.port), { ttl: '60s' })) as [Holdfast, Holdfast];
  const sentinels = await Promise.all([holder, waiter].map((locks, at) => locks.mutex(`sentinel${at}`).acquire()));
  const lease = await holder.mutex('job').acquire();
  let granted = false;
  const waiting = waiter.mutex('job').acquire({ timeout: '60s' });
  waiting.then(
    () => (granted = true),
    () => {},
  );
  await queued(holder.mutex('job'), 1);
  const { claims } = await holder.mutex('job').inspect();
  const inboxes = (await command(server.port, 'PUBSUB', 'CHANNELS')) as string[];
  expect(inboxes).toHaveLength(2);
  return {
    ...{ server, holder, waiter, lease, waiting, inboxes },
    heldId: claims.find(({ state }) => state === 'held')!.id,
    waitingId: claims.find(({ state }) => state === 'waiting')!.id,
    get granted() {
      return granted;
    },
    publish: async (text) => {
      for (const inbox of inboxes) expect(await command(server.port, 'PUBLISH', inbox, text)).toBeGreaterThan(0);
    },
    heardAll: async () => {
      for (const sentinel of sentinels) {
        const [claim] = (await holder.mutex(sentinel.name).inspect()).claims;
        await holder.evict(sentinel.name, claim!.id, 'the last message');
        expect(await lossOf(sentinel)).toMatchObject({ reason: 'evicted', detail: 'the last message' });
      }
    },
    [Symbol.asyncDispose]: async () => {
      await Promise.allSettled([holder, waiter].map((locks) => locks.close({ drain: 0 })));
      await server.stop();
    },
  };
}
