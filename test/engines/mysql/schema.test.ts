import { execFile } from 'node:child_process';
import { promisify } from 'node:util';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { mysql } from '../../../src/engines/mysql/index.js';
import { EngineError, Holdfast, MigrationLockError } from '../../../src/index.js';
import { schemaFromUrl } from '../../../src/schemes.js';
import { FaultProxy } from '../../servers/fault-proxy.js';
import { sql, startMariadb } from '../../servers/mariadb.js';
import type { Server } from '../../servers/server.js';
import { eventually } from '../../servers/wait.js';
import { Worker } from '../sqlite/processes.js';
import { Stage } from './kit.js';
import { answered } from './overheard.js';

let server: Server;

beforeAll(async () => {
  server = await startMariadb();
});
afterAll(() => server.stop());

const urlOf = (database: string, rest = '', user = 'root'): string =>
  `mysql://${user}@127.0.0.1:${server.port}/${database}${rest}`;

async function use(url: string): Promise<unknown> {
  await using locks = new Holdfast(url);
  return await locks.mutex('job').run({ timeout: '20s' }, async ({ held }) => held);
}

async function failure(url: string): Promise<EngineError> {
  const error = await use(url).then(
    () => undefined,
    (thrown: unknown) => thrown,
  );
  expect(error).toBeInstanceOf(EngineError);
  expect((error as EngineError).retryable).toBe(false);
  expect(JSON.stringify(error)).not.toContain('secret');
  return error as EngineError;
}

describe('the tables', () => {
  test('are made once when many instances start at once on an empty database', async () => {
    await sql(server.port, 'CREATE DATABASE fresh');
    const uses = await Promise.all(Array.from({ length: 8 }, () => use(urlOf('fresh'))));
    expect(uses).toEqual(Array.from({ length: 8 }, () => true));
    const rows = await sql(server.port, 'SELECT version FROM holdfast_migration ORDER BY version', 'fresh');
    expect(rows.map(({ version }) => Number(version))).toEqual([1, 2, 3, 4, 5, 6, 7, 8]);
  });

  test('are made once by many processes, of which some are killed on the way', async () => {
    await sql(server.port, 'CREATE DATABASE crowded');
    const workers = Array.from({ length: 7 }, () => new Worker());
    await Promise.all(workers.map((worker) => worker.ask('open', { url: urlOf('crowded'), ttl: '10s' })));
    const tokens = workers.map((worker, at) =>
      worker.ask<string>('acquire', { name: `job-${at}`, timeout: '30s' }).catch(() => 'killed'),
    );
    await eventually('somebody is at it', async () =>
      expect(await sql(server.port, "SHOW TABLES LIKE 'holdfast%'", 'crowded')).not.toHaveLength(0),
    );
    await Promise.all([workers[0]!.end(), workers[1]!.end()]);
    const rest = (await Promise.all(tokens)).slice(2);
    await Promise.all(workers.map((worker) => worker.end()));
    expect(rest.every((token) => /^\d+$/.test(token))).toBe(true);
    const rows = await sql(server.port, 'SELECT version FROM holdfast_migration ORDER BY version', 'crowded');
    expect(rows.map(({ version }) => Number(version))).toEqual([1, 2, 3, 4, 5, 6, 7, 8]);
  });

  test('have the prefix that was asked for, and two prefixes share nothing', async () => {
    await sql(server.port, 'CREATE DATABASE prefixed');
    await use(urlOf('prefixed', '?tablePrefix=a_'));
    await using stage = new Stage(() => server.port);
    const pool = stage.pool({ database: 'prefixed' });
    const a = stage.locks({ tablePrefix: 'a_' }, {}, pool);
    const b = stage.locks({ tablePrefix: 'b_' }, {}, pool);
    const lease = await a.mutex('job').acquire();
    expect(await b.mutex('job').tryAcquire()).toBeDefined();
    await lease.release();
  });

  test.each(['a-b', 'x; DROP TABLE y', '1a', '', 'a'.repeat(31), 'ä'])('refuse the prefix %j', (tablePrefix) => {
    expect(() => mysql('mysql://localhost/app', { tablePrefix })).toThrow(/tablePrefix/);
  });

  test('that a print shows are all that is needed, and the user of the locks may then have few rights', async () => {
    await using schema = (await schemaFromUrl(urlOf('printed')))!;
    const statements = schema
      .print()
      .replaceAll(/DELIMITER (?:\/\/|;)\n?/g, '')
      .replaceAll('END //', 'END;');
    await sql(server.port, 'CREATE DATABASE printed');
    await sql(server.port, statements, 'printed');
    expect(await schema.apply()).toEqual([]);
    await sql(
      server.port,
      "CREATE USER few IDENTIFIED BY 'x'; GRANT SELECT, INSERT, UPDATE, DELETE, EXECUTE ON printed.* TO few",
    );
    for (const strategy of ['queue', 'row', 'version', 'for-update', 'get-lock'])
      expect(await use(urlOf('printed', `?strategy=${strategy}`, 'few:x'))).toBe(true);
  });

  test('are applied by the schema, which says what was missing', async () => {
    await sql(server.port, 'CREATE DATABASE applied');
    await using schema = (await schemaFromUrl(urlOf('applied')))!;
    expect(await schema.apply()).toHaveLength(8);
    expect(await schema.apply()).toEqual([]);
  });

  test('of before notes could be long are widened, whether procedures are there or not', async () => {
    for (const [database, rest] of [
      ['narrow', ''],
      ['narrowest', '; DROP PROCEDURE holdfast_enter_3; DELETE FROM holdfast_migration WHERE version = 5'],
    ] as const) {
      await sql(server.port, `CREATE DATABASE ${database}`);
      await use(urlOf(database));
      const before = `DELETE FROM holdfast_migration WHERE version > 6; ALTER TABLE holdfast_claim MODIFY note BLOB NOT NULL;
        ALTER TABLE holdfast_fence DROP COLUMN opened${rest}`;
      await sql(server.port, before, database);
      await use(urlOf(database));
      const columns = await sql(
        server.port,
        `SELECT column_type AS type FROM information_schema.columns WHERE table_schema = '${database}'
          AND (column_name = 'opened' OR (table_name = 'holdfast_claim' AND column_name = 'note')) ORDER BY 1`,
      );
      expect(columns.map(({ type }) => String(type))).toEqual(['bigint(20)', 'mediumblob']);
    }
  });

  test('of a newer version are left alone', async () => {
    await sql(server.port, 'CREATE DATABASE newer');
    await use(urlOf('newer'));
    await sql(server.port, "INSERT INTO holdfast_migration VALUES (99, '2030-01-01')", 'newer');
    await expect(use(urlOf('newer'))).rejects.toThrow(/newer version/);
  });
});

// What MySQL says before 8.0.29, and what TiDB says.
test.each([1064, 8108])(
  'a server that refuses routines with %i has locks of every strategy, and warns',
  async (errno) => {
    const database = `without_${errno}`;
    await sql(server.port, `CREATE DATABASE ${database}`);
    await using stage = new Stage(() => server.port);
    const refusal = Object.assign(new Error('no'), { errno, code: `ER_${errno}`, sqlState: 'HY000' });
    const pool = answered(stage.pool({ database }), (statement) =>
      statement.startsWith('CREATE PROCEDURE') ? refusal : undefined,
    );
    const warnings: string[] = [];
    const hear = ({ message }: Error): void => void warnings.push(message);
    process.on('warning', hear);
    for (const strategy of ['row', 'version', 'for-update', 'get-lock', 'queue', 'queue'] as const) {
      await using locks = new Holdfast(mysql(pool, { strategy }));
      expect(await locks.mutex('job').run({ timeout: '20s' }, ({ held }) => held)).toBe(true);
    }
    await new Promise((resolve) => setImmediate(resolve));
    process.removeListener('warning', hear);
    // Once in the life of a process.
    expect(warnings.filter((text) => text.includes('8.0.29'))).toHaveLength(errno === 1064 ? 1 : 0);
    const rows = await sql(server.port, 'SELECT version FROM holdfast_migration ORDER BY version', database);
    expect(rows.map(({ version }) => Number(version))).toEqual([1, 2, 3, 4, 6, 7]);
  },
);

describe('behind a migration lock that another has', () => {
  const LOCK = 'holdfast:schema:holdfast_';

  test('acquires and schema apply name it, and schema apply ends with a code of its own', async () => {
    await sql(server.port, 'CREATE DATABASE busy');
    await using stage = new Stage(() => server.port);
    const holder = await stage.pool().promise().getConnection();
    await holder.query(`DO GET_LOCK('${LOCK}', 0)`);
    await using schema = (await schemaFromUrl(urlOf('busy')))!;
    const [acquire, apply, command] = await Promise.allSettled([
      stage
        .locks({}, {}, stage.pool({ database: 'busy' }))
        .mutex('job')
        .acquire({ timeout: '5s' }),
      schema.apply(),
      promisify(execFile)(process.execPath, ['dist/cli/main.js', 'schema', 'apply', '--url', urlOf('busy')]),
    ]);
    expect((acquire as PromiseRejectedResult).reason).toMatchObject({ name: 'EngineError', retryable: true });
    expect(String((acquire as PromiseRejectedResult).reason)).toContain(LOCK);
    expect((apply as PromiseRejectedResult).reason).toBeInstanceOf(MigrationLockError);
    const { code, stderr } = (command as PromiseRejectedResult).reason as { code: number; stderr: string };
    expect(code).toBe(73);
    expect(stderr).toMatch(new RegExp(`migration lock ${LOCK} \\(connection \\d+\\)`));
    await holder.query(`DO RELEASE_LOCK('${LOCK}')`);
    holder.release();
    expect(await schema.apply()).toHaveLength(8);
  });
});

test('schema apply on a server that falls silent ends, and says so', async () => {
  await sql(server.port, 'CREATE DATABASE silent');
  await using proxy = await FaultProxy.start(server.port);
  proxy.set({ mode: 'freeze' });
  const url = urlOf('silent').replace(`:${server.port}/`, `:${proxy.port}/`);
  const ended = await promisify(execFile)(process.execPath, [
    'dist/cli/main.js',
    'schema',
    'apply',
    '--url',
    url,
  ]).catch((error: unknown) => error);
  expect(ended).toMatchObject({ code: 69 });
});

describe('what can’t be cured by trying again is told at once, with what to do', () => {
  test('no right to create: the statement to run', async () => {
    await sql(
      server.port,
      "CREATE DATABASE closed; CREATE USER poor IDENTIFIED BY 'secret'; GRANT SELECT ON closed.* TO poor",
    );
    const { message } = await failure(urlOf('closed', '', 'poor:secret'));
    expect(message).toMatch(/CREATE TABLE IF NOT EXISTS holdfast_migration/);
    expect(message).toMatch(/holdfast schema apply/);
  });

  test('migrate=false and no tables: the first statement that is missing', async () => {
    await sql(server.port, 'CREATE DATABASE unmade');
    const { message } = await failure(urlOf('unmade', '?migrate=false'));
    expect(message).toMatch(/CREATE TABLE IF NOT EXISTS/);
  });

  test('a wrong password, which is not shown', async () => {
    await sql(server.port, "CREATE USER locked IDENTIFIED BY 'right'; GRANT ALL ON test.* TO locked");
    expect((await failure(urlOf('test', '', 'locked:secret'))).message).toMatch(/user or password/);
  });

  test('a database that is not there', async () => {
    expect((await failure(urlOf('nowhere'))).message).toMatch(/no such database/);
  });

  test('tables that were dropped while in use', async () => {
    await sql(server.port, 'CREATE DATABASE dropped');
    await use(urlOf('dropped'));
    await sql(server.port, 'DROP TABLE holdfast_session', 'dropped');
    expect((await failure(urlOf('dropped'))).message).toMatch(/missing/);
  });
});

test('a password with special characters is decoded', async () => {
  await sql(server.port, `CREATE USER odd IDENTIFIED BY 'p@ss/w?rd:#%'; GRANT ALL ON test.* TO odd`);
  expect(await use(urlOf('test', '', `odd:${encodeURIComponent('p@ss/w?rd:#%')}`))).toBe(true);
});
