/** `queue` for a user who may not create or run stored procedures: the same steps as plain statements. */
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { Holdfast } from '../../../src/index.js';
import { schemaFromUrl } from '../../../src/schemes.js';
import { track } from '../../../src/conformance/tracked.js';
import { FaultProxy } from '../../servers/fault-proxy.js';
import { sql, startMariadb } from '../../servers/mariadb.js';
import type { Server } from '../../servers/server.js';
import { eventually } from '../../servers/wait.js';
import { Worker } from '../sqlite/processes.js';
import { changedSettings, LIMIT_MS, LONG, Stage } from './kit.js';

let server: Server;

beforeAll(async () => {
  server = await startMariadb();
  for (const user of ['plain', 'mute'])
    await sql(server.port, `CREATE USER ${user}; ${TABLES_ONLY} ON test.* TO ${user}`);
});
afterAll(() => server.stop());

const TABLES_ONLY = 'GRANT SELECT, INSERT, UPDATE, DELETE, CREATE';

const urlOf = (user: string, database = 'test', port = server.port): string =>
  `mysql://${user}@127.0.0.1:${port}/${database}`;

async function callsOfProcedures(): Promise<number> {
  const [row] = await sql(server.port, "SHOW GLOBAL STATUS LIKE 'Com_call_procedure'");
  return Number(row!['Value']);
}

test('without CREATE ROUTINE tables are made and locks work; routines are used when somebody has made them', async () => {
  await sql(server.port, `CREATE DATABASE poor; ${TABLES_ONLY} ON poor.* TO plain`);
  const calls = async (): Promise<number> => {
    const before = await callsOfProcedures();
    await using locks = new Holdfast(urlOf('plain', 'poor'));
    expect(await locks.semaphore('job', 2).run(async ({ held }) => held)).toBe(true);
    return (await callsOfProcedures()) - before;
  };
  // The question whether they are there.
  expect(await calls()).toBe(1);
  await using others = new Holdfast(`${urlOf('plain', 'poor')}?strategy=row`);
  expect(await others.mutex('job').run(async ({ held }) => held)).toBe(true);
  await using schema = (await schemaFromUrl(urlOf('root', 'poor')))!;
  expect(await schema.apply()).toEqual(['5: steps of sessions', '8: steps of lines']);
  // They are there, but this user may not run them.
  expect(await calls()).toBe(1);
  await sql(server.port, 'GRANT EXECUTE ON poor.* TO plain');
  expect(await calls()).toBeGreaterThan(2);
});

test('migrate=false: tables without routines are enough', async () => {
  await sql(server.port, `CREATE DATABASE half; ${TABLES_ONLY} ON half.* TO plain`);
  for (const rest of ['', '?migrate=false']) {
    await using locks = new Holdfast(urlOf('plain', 'half') + rest);
    expect(await locks.mutex('job').run(async ({ held }) => held)).toBe(true);
  }
});

test('clients with and without routines stand in one line, in order', async () => {
  await using stage = new Stage(() => server.port);
  const instances = ['root', 'plain', 'root', 'plain'].map((user) => stage.locks({}, {}, stage.pool({ user })));
  const own = await instances[1]!.rwLock('line').write.acquire();
  const waiting = [];
  for (const [at, locks] of instances.entries()) {
    const { read, write } = locks.rwLock('line');
    waiting.push(track(at < 2 ? read.acquire() : write.acquire()));
    await eventually(`${at + 1} wait`, async () => expect((await read.inspect()).claims).toHaveLength(at + 2));
  }
  const [a, b, c, d] = waiting as [Waiting, Waiting, Waiting, Waiting];
  const reader = await own.downgrade();
  const readers = [reader, await a.promise, await b.promise];
  expect(c.state).toBe('pending');
  for (const lease of readers) await lease.release();
  const third = await c.promise;
  expect(d.state).toBe('pending');
  await third.release();
  const fourth = await d.promise;
  expect([...readers, third, fourth].map(({ token }) => token)).toEqual(
    [...readers, third, fourth].map(({ token }) => token).sort((one, other) => (one < other ? -1 : 1)),
  );
});

type Waiting = ReturnType<typeof track<Awaited<ReturnType<ReturnType<Holdfast['mutex']>['acquire']>>>>;

test('a session with more claims than one transaction takes is closed in parts, and leaves nothing behind', async () => {
  await using stage = new Stage(() => server.port);
  const locks = stage.locks({}, { namespace: 'many', ttl: '1m' }, stage.pool({ user: 'plain' }));
  for (let at = 0; at < 120; at += 1) await locks.mutex(`name-${at}`).acquire();
  await locks.close();
  for (const table of ['session', 'claim']) {
    const [row] = await sql(server.port, `SELECT COUNT(*) AS many FROM holdfast_${table} WHERE namespace = 'many'`);
    expect(Number(row!['many'])).toBe(0);
  }
});

test('connections of your pool go back as they were', async () => {
  await using stage = new Stage(() => server.port);
  const pool = stage.pool({ user: 'plain', connectionLimit: 4 });
  const locks = stage.locks({}, {}, pool);
  await Promise.all(Array.from({ length: 20 }, (_, at) => locks.semaphore(`back-${at % 3}`, 2).run(() => {})));
  await eventually('all are', async () => expect(await changedSettings(pool, 4)).toEqual([]));
});

test.concurrent(
  'never loses an update: processes of both kinds increment a plain file',
  async () => {
    const folder = mkdtempSync(join(tmpdir(), 'holdfast-'));
    const file = join(folder, 'counter');
    writeFileSync(file, '0');
    const times = LONG ? 100 : 10;
    const workers = Array.from({ length: 8 }, () => new Worker({ execArgv: ['--no-warnings'] }));
    await Promise.all(
      workers.map((worker, at) => worker.ask('open', { url: urlOf(at % 4 === 0 ? 'root' : 'plain'), ttl: '10s' })),
    );
    await Promise.all(workers.map((worker) => worker.ask('count', { name: 'counter', file, times })));
    await Promise.all(workers.map((worker) => worker.end()));
    const counted = readFileSync(file, 'utf8');
    rmSync(folder, { recursive: true });
    expect(counted).toBe(`${8 * times}`);
  },
  LIMIT_MS,
);

test.concurrent('idle lines are cleaned away', async () => {
  await using stage = new Stage(() => server.port);
  const locks = stage.locks({}, { namespace: 'clean', ttl: '6s' }, stage.pool({ user: 'plain' }));
  const first = await locks.mutex('name-0').run(async ({ token }) => token);
  for (let at = 0; at < 20; at += 1) await locks.semaphore(`name-${at}`, 3).run(() => {});
  await eventually('the table is small', async () => {
    const [row] = await sql(server.port, "SELECT COUNT(*) AS many FROM holdfast_line WHERE namespace = 'clean'");
    expect(Number(row!['many'])).toBeLessThan(5);
  });
  expect(await locks.mutex('name-0').run(async ({ token }) => token)).toBeGreaterThan(first);
});

test.concurrent(
  'a client that falls silent in the middle of a step holds nobody up for longer than a ttl',
  async () => {
    await using proxy = await FaultProxy.start(server.port);
    await using stage = new Stage(() => server.port);
    const other = stage.locks({}, { ttl: '3s' });
    await other.ready();
    const silent = new Holdfast(urlOf('mute', 'test', proxy.port), { ttl: '3s' });
    await silent.ready();
    const over = new AbortController();
    const using = (async () => {
      while (!over.signal.aborted)
        await silent
          .mutex('step')
          .run({ timeout: '30s' }, () => {})
          .catch(() => {});
    })();
    await eventually('it is silent in the middle of a step', async () => {
      proxy.set({ mode: 'freeze' });
      // Who asks more than ten times a second gets the last answer again.
      await sleep(150);
      const [row] = await sql(
        server.port,
        `SELECT COUNT(*) AS many FROM information_schema.innodb_trx WHERE trx_rows_locked > 0
        AND trx_mysql_thread_id IN (SELECT id FROM information_schema.processlist WHERE user = 'mute' AND command = 'Sleep')`,
      );
      if (Number(row!['many']) > 0) return;
      proxy.heal();
      throw new Error('it is not');
    });
    expect(await other.mutex('step').run({ timeout: '30s' }, async ({ held }) => held)).toBe(true);
    over.abort();
    proxy.heal();
    await using;
    await silent.close();
  },
);
