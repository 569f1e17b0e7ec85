/** What InnoDB rolls back, or ends for its own reasons, is done again: it reaches nobody, and never as an error of the client. */
import type { Pool } from 'mysql2';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { mysql } from '../../../src/engines/mysql/index.js';
import { AcquireTimeoutError, EngineError, Holdfast } from '../../../src/index.js';
import { track } from '../../../src/conformance/tracked.js';
import { sql, startMariadb } from '../../servers/mariadb.js';
import type { Server } from '../../servers/server.js';
import { eventually } from '../../servers/wait.js';
import { Stage } from './kit.js';
import { waitingInServer } from './innodb.js';

let server: Server;

beforeAll(async () => {
  server = await startMariadb();
  await sql(server.port, 'CREATE USER plain; GRANT SELECT, INSERT, UPDATE, DELETE, CREATE ON test.* TO plain');
});
afterAll(() => server.stop());

const CODES = { 1213: 'ER_LOCK_DEADLOCK', 1205: 'ER_LOCK_WAIT_TIMEOUT', 3058: 'ER_USER_LOCK_DEADLOCK' } as const;
const STRATEGIES = ['queue', 'row', 'version', 'for-update', 'get-lock'] as const;

/** What takes locks. */
const STEP = /^(?:CALL|INSERT|UPDATE|DELETE|SET STATEMENT|SELECT .*(?:FOR UPDATE|SHARE|GET_LOCK))/s;

type Query = (options: { readonly sql: string }, done: (error: unknown, result?: unknown) => void) => unknown;

/** The same pool, whose server fails with this number whenever `fails` says so. */
function failing(pool: Pool, errno: keyof typeof CODES, fails: (statement: string) => boolean): object {
  const failed = (): Error =>
    Object.assign(new Error('from the server'), { errno, code: CODES[errno], sqlState: '40001' });
  const wrapped = (connection: object): object =>
    new Proxy(connection, {
      get: (target, name) => {
        const value: unknown = Reflect.get(target, name, target);
        if (typeof value !== 'function') return value;
        if (name !== 'query') return (value as () => unknown).bind(target);
        const query: Query = (options, done) =>
          STEP.test(options.sql) && fails(options.sql)
            ? setImmediate(done, failed())
            : (value as Query).call(target, options, done);
        return query;
      },
    });
  return {
    promise: () => undefined,
    config: { connectionLimit: 10 },
    getConnection: (done: (error: unknown, connection?: object) => void) =>
      pool.getConnection((error, connection) => (error ? done(error) : done(null, wrapped(connection)))),
  };
}

describe.each([1213, 1205, 3058] as const)('error %i', (errno) => {
  test.concurrent.each([...STRATEGIES, 'queue without routines'] as const)('is done again: %s', async (strategy) => {
    await using stage = new Stage(() => server.port);
    const user = strategy === 'queue without routines' ? 'plain' : 'root';
    const pool = stage.pool({ user });
    const options = { strategy: strategy === 'queue without routines' ? 'queue' : strategy } as const;
    await stage.locks(options, {}, pool).ready();
    // The first time that it hears a statement.
    const heard = new Set<string>();
    const fails = (statement: string): boolean => {
      const shape = statement.replaceAll(/X'\w*'|\d+/g, '');
      const isNew = !heard.has(shape);
      heard.add(shape);
      return isNew;
    };
    const locks = new Holdfast(mysql(failing(pool, errno, fails), options));
    for (let turn = 0; turn < 4; turn += 1)
      expect(await locks.mutex(`again-${turn}`).run({ timeout: '20s' }, async ({ held }) => held)).toBe(true);
    await locks.close();
    expect(heard.size).toBeGreaterThan(1);
  });

  test.concurrent.each(STRATEGIES)('without end is an error of ours, and never the client’s: %s', async (strategy) => {
    await using stage = new Stage(() => server.port);
    const pool = stage.pool();
    let isBroken = false;
    const locks = new Holdfast(
      mysql(
        failing(pool, errno, () => isBroken),
        { strategy },
      ),
      { ttl: '3s' },
    );
    await locks.mutex('never').run(() => {});
    isBroken = true;
    const failure = await locks
      .mutex('never')
      .acquire({ timeout: 3_000 })
      .catch((error: unknown) => error);
    isBroken = false;
    // To wait for a row for too long is what busy means where the server keeps the queue.
    expect(failure).toBeInstanceOf(strategy === 'for-update' && errno === 1205 ? AcquireTimeoutError : EngineError);
    expect(JSON.stringify(failure)).not.toContain('from the server');
    await locks.close();
  });
});

test('a deadlock with another transaction, of which ours is the victim, costs nobody more than a wait', async () => {
  await using stage = new Stage(() => server.port);
  const locks = stage.locks({}, { namespace: 'victim' });
  await locks.mutex('job').run(() => {});
  const connection = await stage.pool().promise().getConnection();
  await connection.query('CREATE TABLE weight (id INT PRIMARY KEY) ENGINE = InnoDB');
  await connection.beginTransaction();
  // InnoDB gives up whoever has done less.
  await connection.query(`INSERT INTO weight VALUES ${Array.from({ length: 100 }, (_, id) => `(${id})`).join(', ')}`);
  await connection.query(
    "SELECT * FROM holdfast_line WHERE namespace = 'victim' AND kind = 0 AND name = 'job' FOR UPDATE",
  );
  const lease = track(locks.mutex('job').acquire({ timeout: '20s' }));
  await eventually('the step waits for the line', async () => expect(await waitingInServer(server)).toBe(1));
  // It has its session locked, which is asked for now.
  await connection.query("SELECT * FROM holdfast_session WHERE namespace = 'victim' FOR UPDATE");
  expect(lease.state).toBe('pending');
  await connection.commit();
  connection.release();
  expect((await lease.promise).held).toBe(true);
});
