import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { mysql } from '../../../src/engines/mysql/index.js';
import { EngineError, Holdfast } from '../../../src/index.js';
import { schemaFromUrl } from '../../../src/schemes.js';
import { sql, startMariadb } from '../../servers/mariadb.js';
import type { Server } from '../../servers/server.js';
import { eventually } from '../../servers/wait.js';
import { Worker } from '../sqlite/processes.js';
import { Stage } from './kit.js';

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
    expect(rows.map(({ version }) => Number(version))).toEqual([1, 2, 3, 4, 5, 6]);
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
    expect(rows.map(({ version }) => Number(version))).toEqual([1, 2, 3, 4, 5, 6]);
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
    expect(await schema.apply()).toHaveLength(6);
    expect(await schema.apply()).toEqual([]);
  });

  test('of a newer version are left alone', async () => {
    await sql(server.port, 'CREATE DATABASE newer');
    await use(urlOf('newer'));
    await sql(server.port, "INSERT INTO holdfast_migration VALUES (99, '2030-01-01')", 'newer');
    await expect(use(urlOf('newer'))).rejects.toThrow(/newer version/);
  });
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
