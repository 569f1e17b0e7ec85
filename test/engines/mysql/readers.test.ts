/** Readers of `for-update`: what InnoDB's own queue makes of them, which the conformance suite can't see. */
import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { mysql } from '../../../src/engines/mysql/index.js';
import { Holdfast, type Lease, LeaseLostError } from '../../../src/index.js';
import { gate, track } from '../../../src/conformance/tracked.js';
import { FaultProxy } from '../../servers/fault-proxy.js';
import { sql, startMariadb } from '../../servers/mariadb.js';
import type { Server } from '../../servers/server.js';
import { eventually } from '../../servers/wait.js';
import { waitingInServer } from './innodb.js';
import { changedSettings, LONG, Stage } from './kit.js';
import { overheard } from './overheard.js';

let server: Server;

beforeAll(async () => {
  server = await startMariadb();
});
afterAll(() => server.stop());

type RwLock = ReturnType<Holdfast['rwLock']>;

const OPTIONS = { strategy: 'for-update' } as const;

/** How many wait inside the server for a row of this table. */
const waitingFor = (table: string): Promise<number> => waitingInServer(server, `SELECT @@%FROM holdfast_${table}`);

test('a waiting writer is not overtaken by readers that come later', async () => {
  await using stage = new Stage(() => server.port);
  const [a, b, c] = [1, 2, 3].map(() => stage.locks(OPTIONS).rwLock('queue')) as [RwLock, RwLock, RwLock];
  const reader = await a.read.acquire();
  const writer = track(b.write.acquire());
  await eventually('the writer waits in the server', async () => expect(await waitingFor('latch')).toBe(1));
  expect(await c.read.tryAcquire()).toBeUndefined();
  await reader.release();
  await (await writer.promise).release();
  expect(await (await c.read.acquire()).release()).toBe(true);
});

test('a downgrade lets nobody in who waited for the writer, and a writer who waits for the reader stops later readers', async () => {
  await using stage = new Stage(() => server.port);
  const [a, b, c] = [1, 2, 3].map(() => stage.locks(OPTIONS).rwLock('downgraded')) as [RwLock, RwLock, RwLock];
  const own = await a.write.acquire();
  const writer = track(b.write.acquire());
  await eventually('the writer waits for the writer', async () => expect(await waitingFor('latch')).toBe(1));
  const reader = await own.downgrade();
  await eventually('the writer waits for the reader, or is in', async () =>
    expect(writer.state === 'pending' ? await waitingFor('downgrade') : 1).toBe(1),
  );
  expect(writer.state).toBe('pending');
  expect(reader.held).toBe(true);
  expect(await c.write.tryAcquire()).toBeUndefined();
  await reader.release();
  const next = await writer.promise;
  expect(next.token).toBeGreaterThan(reader.token);
  await next.release();
});

test('a downgrade keeps the writer until there is a reader in its place', async () => {
  await using stage = new Stage(() => server.port);
  const late = gate();
  let isHeldBack = false;
  const pool = overheard(stage.pool(), async (statement) => {
    if (isHeldBack || !statement.startsWith('INSERT INTO holdfast_downgrade')) return;
    isHeldBack = true;
    await late.opened;
  });
  await using locks = new Holdfast(mysql(pool, OPTIONS));
  const own = await locks.rwLock('between').write.acquire();
  const writer = track(stage.locks(OPTIONS).rwLock('between').write.acquire());
  await eventually('the writer waits for the writer', async () => expect(await waitingFor('latch')).toBe(1));
  const downgrading = own.downgrade();
  await eventually('the reader is on its way', async () => expect(isHeldBack).toBe(true));
  await eventually('the writer waits, or is in', async () =>
    expect(writer.state === 'pending' ? await waitingFor('latch') : 1).toBe(1),
  );
  expect(writer.state).toBe('pending');
  late.open();
  await (await downgrading).release();
  await (await writer.promise).release();
});

test('what a writer wrote is there for as long as it reads, whoever waits', async () => {
  await using stage = new Stage(() => server.port);
  const instances = Array.from({ length: 4 }, () => stage.locks(OPTIONS, {}, stage.pool({ connectionLimit: 20 })));
  let [value, readers, writers] = [0, 0, 0];
  const writing = async ({ write }: RwLock): Promise<void> => {
    const own = await write.acquire();
    expect([readers, writers]).toEqual([0, 0]);
    writers += 1;
    const mine = (value += 1);
    await sleep(Math.random() * 3);
    writers -= 1;
    readers += 1;
    const reader = await own.downgrade();
    expect(value).toBe(mine);
    await sleep(Math.random() * 5);
    expect([value, writers, reader.held]).toEqual([mine, 0, true]);
    readers -= 1;
    await reader.release();
  };
  const reading = ({ read }: RwLock): Promise<void> =>
    read.run(async () => {
      expect(writers).toBe(0);
      readers += 1;
      const seen = value;
      await sleep(Math.random() * 3);
      expect([value, writers]).toEqual([seen, 0]);
      readers -= 1;
    });
  const times = LONG ? 60 : 8;
  await Promise.all(
    instances.flatMap((locks) => {
      const lock = locks.rwLock('storm');
      return Array.from({ length: 3 }, async (_, kind) => {
        for (let turn = 0; turn < times; turn += 1) await (kind === 0 ? writing(lock) : reading(lock));
      });
    }),
  );
  expect(value).toBe(4 * times);
  // Rows of readers that were writers are never committed.
  const [row] = await sql(server.port, 'SELECT COUNT(*) AS many FROM holdfast_downgrade');
  expect(Number(row!['many'])).toBe(0);
});

test('a downgrade that finds no connection is made when there is one; until then it excludes', async () => {
  await using stage = new Stage(() => server.port);
  const locks = stage.byUrl('strategy=for-update&connections=2', { ttl: '6s' });
  const other = stage.byUrl('strategy=for-update');
  const own = await locks.rwLock('scarce').write.acquire();
  const last = await locks.mutex('last').acquire();
  const reader = await own.downgrade();
  expect(reader.held).toBe(true);
  expect(await other.rwLock('scarce').read.tryAcquire()).toBeUndefined();
  await last.release();
  const beside = await other.rwLock('scarce').read.acquire({ timeout: '20s' });
  expect([reader.held, beside.held]).toEqual([true, true]);
});

test('a reader that was a writer is told at once that its connection was killed, and leaves nothing behind', async () => {
  await using stage = new Stage(() => server.port);
  const locks = stage.byUrl('strategy=for-update', { ttl: '10m' });
  const reader = await (await locks.rwLock('killed').write.acquire()).downgrade();
  const rows = await sql(server.port, 'SELECT id FROM information_schema.processlist WHERE id <> CONNECTION_ID()');
  for (const { id } of rows) await sql(server.port, `KILL CONNECTION ${id}`).catch(() => {});
  await eventually('the lease is lost', async () => expect(reader.held).toBe(false));
  const writer = await locks.rwLock('killed').write.acquire({ timeout: '30s' });
  expect(writer.token).toBeGreaterThan(reader.token);
});

test('connections of your pool go back as they were', async () => {
  await using stage = new Stage(() => server.port);
  const pool = stage.pool({ connectionLimit: 4 });
  const locks = stage.locks(OPTIONS, {}, pool);
  for (let turn = 0; turn < 4; turn += 1) {
    const reader = await (await locks.rwLock('back').write.acquire()).downgrade();
    const beside = await locks.rwLock('back').read.acquire();
    expect(await locks.mutex('back').tryAcquire()).toBeUndefined();
    await Promise.all([reader.release(), beside.release()]);
  }
  expect(await changedSettings(pool, 4)).toEqual([]);
});

/** A downgrade of which one reply is lost, with its connection. */
async function downgradeWithout(replyOf: string, stage: Stage, proxy: FaultProxy): Promise<[Lease, Promise<Lease>]> {
  const { write } = stage.byUrl('strategy=for-update', { ttl: '6s' }, proxy.port).rwLock(replyOf);
  const writer = await write.acquire();
  const lost = proxy.loseReplyOf((request) => request.includes(replyOf));
  const reader = writer.downgrade();
  reader.catch(() => undefined);
  await lost;
  return [writer, reader];
}

test('a second connection that breaks costs nothing: the downgrade is made with another', async () => {
  await using proxy = await FaultProxy.start(server.port);
  await using stage = new Stage(() => server.port);
  const [, downgraded] = await downgradeWithout('INSERT INTO holdfast_downgrade', stage, proxy);
  const reader = await downgraded;
  const beside = await stage.byUrl('strategy=for-update').rwLock(reader.name).read.acquire({ timeout: '20s' });
  expect([reader.held, beside.held]).toEqual([true, true]);
});

test('a first connection that breaks is a loss: nobody knows whether another writer came in', async () => {
  await using proxy = await FaultProxy.start(server.port);
  await using stage = new Stage(() => server.port);
  const [writer, downgraded] = await downgradeWithout('ROLLBACK', stage, proxy);
  await expect(downgraded).rejects.toBeInstanceOf(LeaseLostError);
  const next = await stage.byUrl('strategy=for-update').mutex(writer.name).acquire({ timeout: '20s' });
  expect(next.token).toBeGreaterThan(writer.token);
});
