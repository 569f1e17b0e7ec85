import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { clearParserCache } from 'mysql2';
import { createPool as createPromisePool } from 'mysql2/promise';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { mysql } from '../../../src/engines/mysql/index.js';
import { AcquireTimeoutError, Holdfast } from '../../../src/index.js';
import { gate, track } from '../../../src/conformance/tracked.js';
import { oddCast, sql, startMariadb } from '../../servers/mariadb.js';
import type { Server } from '../../servers/server.js';
import { eventually } from '../../servers/wait.js';
import { Worker } from '../sqlite/processes.js';
import { LIMIT_MS, LONG, Stage, STRATEGIES } from './kit.js';
import { overheard } from './overheard.js';

let server: Server;

beforeAll(async () => {
  server = await startMariadb();
});
afterAll(() => server.stop());

const urlOf = (strategy: string): string => `mysql://root@127.0.0.1:${server.port}/test?strategy=${strategy}`;

describe.each(STRATEGIES)('%s', (strategy) => {
  test(
    'never loses an update: 8 processes increment a plain file',
    async () => {
      const folder = mkdtempSync(join(tmpdir(), 'holdfast-'));
      const file = join(folder, 'counter');
      writeFileSync(file, '0');
      const times = LONG ? 100 : 15;
      const workers = Array.from({ length: 8 }, () => new Worker());
      await Promise.all(workers.map((worker) => worker.ask('open', { url: urlOf(strategy), ttl: '10s' })));
      await Promise.all(workers.map((worker) => worker.ask('count', { name: 'counter', file, times })));
      await Promise.all(workers.map((worker) => worker.end()));
      const counted = readFileSync(file, 'utf8');
      rmSync(folder, { recursive: true });
      expect(counted).toBe(`${8 * times}`);
    },
    LIMIT_MS,
  );

  test('two names never block each other, not even while one of them stands still inside the server', async () => {
    await using stage = new Stage(() => server.port);
    const locks = stage.locks({ strategy });
    await locks.mutex('left').run(() => {});
    await locks.mutex('right').run(() => {});
    const pool = stage.pool().promise();
    const connection = await pool.getConnection();
    await connection.beginTransaction();
    // Whatever row stands for the name, in whatever table: locked by somebody who does not go on.
    for (const table of ['row', 'version', 'latch', 'mint'])
      await connection.query(
        `SELECT * FROM holdfast_${table} WHERE namespace = 'holdfast' AND name = 'left' FOR UPDATE`,
      );
    await connection.query(
      "SELECT * FROM holdfast_line WHERE namespace = 'holdfast' AND kind = 0 AND name = 'left' FOR UPDATE",
    );
    const held = await locks.mutex('right').acquire({ timeout: '20s' });
    expect(held.held).toBe(true);
    await held.release();
    await locks.mutex('middle').run({ timeout: '20s' }, () => {});
    connection.destroy();
  });

  test('a busy lock is an AcquireTimeoutError, whatever the server calls it', async () => {
    await using stage = new Stage(() => server.port);
    const [a, b] = [stage.locks({ strategy }), stage.locks({ strategy })];
    const lease = await a.mutex('busy').acquire();
    // The timeout counts the wait, and not the connection.
    await b.ready();
    await expect(b.mutex('busy').acquire({ timeout: 3_000 })).rejects.toThrow(AcquireTimeoutError);
    expect(await b.mutex('busy').tryAcquire()).toBeUndefined();
    await lease.release();
  });

  test(
    'no error reaches anybody in a storm of many names in random order, and no update is lost',
    async () => {
      const folder = mkdtempSync(join(tmpdir(), 'holdfast-'));
      const names = Array.from({ length: 6 }, (_, at) => `storm-${at}`);
      for (const name of names) writeFileSync(join(folder, name), '0');
      const times = LONG ? 100 : 10;
      const workers = Array.from({ length: LONG ? 8 : 4 }, () => new Worker());
      const written = await Promise.all(
        workers.map(async (worker) => {
          await worker.ask('open', { url: urlOf(strategy), ttl: '10s' });
          return worker.ask<Record<string, number>>('storm', { names, folder, times });
        }),
      );
      await Promise.all(workers.map((worker) => worker.end()));
      for (const name of names) {
        const sum = written.reduce((total, one) => total + one[name]!, 0);
        expect(readFileSync(join(folder, name), 'utf8')).toBe(`${sum}`);
      }
      rmSync(folder, { recursive: true });
    },
    LIMIT_MS,
  );

  test(
    'a name used once leaves nothing behind, and its tokens go on above the last',
    async () => {
      await using stage = new Stage(() => server.port);
      const namespace = `clean-${strategy}`;
      const locks = stage.locks({ strategy }, { namespace, ttl: '6s' }, stage.pool({ connectionLimit: 30 }));
      const many = LONG ? 100_000 : 1_000;
      const first = await locks.mutex('name-0').run(async ({ token }) => token);
      for (let at = 0; at < many; at += 20)
        await Promise.all(Array.from({ length: 20 }, (_, next) => locks.mutex(`name-${at + next}`).run(() => {})));
      const tables = strategy === 'queue' ? ['line', 'claim'] : ['row', 'version', 'latch', 'mint'];
      await eventually('the tables are small', async () => {
        for (const table of tables) {
          const query = `SELECT COUNT(*) AS many FROM holdfast_${table} WHERE namespace = '${namespace}'`;
          expect(Number((await sql(server.port, query))[0]!['many'])).toBeLessThan(10);
        }
      });
      // What was deleted is remembered as a floor: also a clock that went back would give no smaller token.
      const floors = await sql(
        server.port,
        `SELECT CAST(token AS CHAR) AS token FROM holdfast_floor WHERE namespace = '${namespace}'`,
      );
      expect(BigInt(String(floors[0]!['token'])) * 1_024n).toBeGreaterThanOrEqual(first);
      expect(await locks.mutex('name-0').run(async ({ token }) => token)).toBeGreaterThan(first);
    },
    LIMIT_MS,
  );

  test('a pool of mysql2/promise does, too, and is not closed', async () => {
    const pool = createPromisePool(urlOf(strategy).replace(/\?.*/, ''));
    const locks = new Holdfast(mysql(pool, { strategy }));
    expect(await locks.mutex('promised').run(async ({ held }) => held)).toBe(true);
    await locks.close();
    expect((await pool.query('SELECT 1 AS one'))[0]).toEqual([{ one: 1 }]);
    await pool.end();
  });

  test('a pool that makes odd values of columns does, too', async () => {
    await using stage = new Stage(() => server.port);
    // What is compiled for the columns of one pool would serve another.
    clearParserCache();
    const [one, two] = [stage.locks({ strategy }, {}, stage.pool({ typeCast: oddCast })), stage.locks({ strategy })];
    const first = await one.mutex('odd').acquire();
    expect(await two.mutex('odd').tryAcquire()).toBeUndefined();
    await first.release();
    expect((await two.mutex('odd').acquire()).token).toBeGreaterThan(first.token);
    clearParserCache();
  });
});

test.each(['for-update', 'get-lock'] as const)(
  '%s: a wait that was given up is over before we ask again',
  async (strategy) => {
    await using stage = new Stage(() => server.port);
    const waits = `SELECT COUNT(*) AS many FROM information_schema.processlist
    WHERE info LIKE 'SELECT GET\\_LOCK%' OR info LIKE 'SELECT @@%FROM holdfast\\_latch%'`;
    const waiting = async (): Promise<number> => Number((await sql(server.port, waits))[0]!['many']);
    const [a, b] = [stage.locks({ strategy }).mutex('given up'), stage.locks({ strategy }).mutex('given up')];
    const lease = await a.acquire();
    const giveUp = new AbortController();
    const waiter = b.acquire({ signal: giveUp.signal });
    await eventually('it waits inside the server', async () => expect(await waiting()).toBe(1));
    giveUp.abort('enough');
    await expect(waiter).rejects.toBe('enough');
    // Else the server would grant it what the holder releases, and refuse our next try.
    expect(await b.tryAcquire()).toBeUndefined();
    expect(await waiting()).toBe(0);
    await lease.release();
    expect((await b.tryAcquire())?.held).toBe(true);
  },
);

test.each([
  ['row', /^INSERT INTO holdfast_row/],
  ['version', /^SELECT CAST\(token AS CHAR\), owner/],
] as const)('%s: what was given up is dropped after it was asked for, and not before', async (strategy, asks) => {
  await using stage = new Stage(() => server.port);
  const holder = stage.locks({ strategy }).mutex('overtaken');
  const lease = await holder.acquire();
  const late = gate();
  const sent: string[] = [];
  let holdsBack = false;
  const own = stage.pool();
  // A drop finds a connection at once, beside that of the question.
  const ready = await Promise.all([1, 2, 3].map(() => own.promise().getConnection()));
  for (const connection of ready) connection.release();
  const pool = overheard(own, async (statement) => {
    const kind = asks.test(statement) ? 'take' : /SET owner = ''/.test(statement) ? 'drop' : undefined;
    if (kind === 'take' && holdsBack && !sent.includes('held back')) {
      sent.push('held back');
      await late.opened;
    }
    if (kind && holdsBack) sent.push(kind);
  });
  await using locks = new Holdfast(mysql(pool, { strategy }), { ttl: '1m' });
  const giveUp = new AbortController();
  const waiter = track(locks.mutex('overtaken').acquire({ signal: giveUp.signal }));
  holdsBack = true;
  await eventually('a question is on its way', async () => expect(sent).toEqual(['held back']));
  giveUp.abort('enough');
  await expect(waiter.promise).rejects.toBe('enough');
  // The question finds it free.
  await lease.release();
  const tried = locks.mutex('overtaken').tryAcquire();
  late.open();
  expect((await tried)?.held).toBe(true);
  expect(sent.slice(0, 3)).toEqual(['held back', 'take', 'drop']);
});

test('what is no pool is refused when it is passed', () => {
  for (const wrong of [{}, { query() {} }, undefined, 5])
    expect(() => mysql(wrong as object)).toThrow(/pool of mysql2/);
});
