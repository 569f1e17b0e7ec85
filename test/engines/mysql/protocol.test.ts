/** The steps of `queue`, called by hand, where two of them have to meet inside the server, or rows have to be old. */
import type { RowDataPacket } from 'mysql2';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { Connections } from '../../../src/engines/mysql/client/connections.js';
import { Database } from '../../../src/engines/mysql/client/database.js';
import { bytes, poolOf } from '../../../src/engines/mysql/client/port.js';
import { Tenure } from '../../../src/engines/mysql/client/tenure.js';
import { procedureSteps } from '../../../src/engines/mysql/queue/protocol.js';
import { statementSteps } from '../../../src/engines/mysql/queue/statements.js';
import { NOW } from '../../../src/engines/mysql/tables.js';
import { track } from '../../../src/conformance/tracked.js';
import { sql, startMariadb } from '../../servers/mariadb.js';
import type { Server } from '../../servers/server.js';
import { eventually, waitFor } from '../../servers/wait.js';
import { waitingInServer } from './innodb.js';
import { Stage } from './kit.js';

let server: Server;

beforeAll(async () => {
  server = await startMariadb();
  await using stage = new Stage(() => server.port);
  await stage.locks({}).ready();
});
afterAll(() => server.stop());

const ALL = 2 ** 31 - 1;
const HOUR_US = 3_600_000_000;

async function count(table: string, where: string): Promise<number> {
  const [row] = await sql(server.port, `SELECT COUNT(*) AS many FROM holdfast_${table} WHERE ${where}`);
  return Number(row!['many']);
}

async function open(session: string, namespace: string): Promise<void> {
  const ttlUs = 600_000_000;
  await sql(
    server.port,
    `INSERT INTO holdfast_session VALUES ('${session}', '${namespace}', ${ttlUs}, ${NOW} + ${ttlUs})`,
  );
}

/** A mutex named `job`; answers the state. */
async function enter(session: string, namespace: string): Promise<string> {
  const claim = `'${session}', '${session}-1', '${namespace}', 0, 'job'`;
  const answer = await sql(server.port, `CALL holdfast_enter_3(${claim}, 1, ${ALL}, ${ALL}, 1, '')`);
  return String((answer as unknown as RowDataPacket[][])[0]![0]!['state']);
}

test('of enters that meet inside the server one is granted, and the others wait behind it', async () => {
  await using stage = new Stage(() => server.port);
  const sessions = ['a', 'b', 'c', 'd'];
  for (const session of sessions) await open(session, 'meeting');
  // The line is there, and nobody has it.
  await enter('a', 'meeting');
  await sql(server.port, `CALL holdfast_leave_2('a', 'a-1', 'meeting', 0, 'job')`);
  const other = await stage.pool().promise().getConnection();
  await other.beginTransaction();
  await other.query(`SELECT * FROM holdfast_line WHERE namespace = 'meeting' AND kind = 0 AND name = 'job' FOR UPDATE`);
  const states = sessions.map((session) => enter(session, 'meeting'));
  await eventually('all of them wait inside the server', async () =>
    expect(await waitingInServer(server)).toBe(sessions.length),
  );
  await other.commit();
  other.release();
  expect((await Promise.all(states)).filter((state) => state === 'held')).toHaveLength(1);
  expect(await count('claim', `namespace = 'meeting' AND held = 1`)).toBe(1);
});

test('a session whose beat is under way is not buried', async () => {
  await using stage = new Stage(() => server.port);
  await open('late', 'graveyard');
  await sql(server.port, `UPDATE holdfast_session SET expires = ${NOW} WHERE id = 'late'`);
  const beating = await stage.pool().promise().getConnection();
  await beating.beginTransaction();
  // As a beat does that was in time, and is not committed yet.
  await beating.query(`UPDATE holdfast_session SET expires = ${NOW} + ttl WHERE id = 'late'`);
  const burial = track(sql(server.port, `CALL holdfast_bury_2('late', 0)`));
  await eventually('the burial waits for the beat', async () => expect(await waitingInServer(server)).toBe(1));
  await beating.commit();
  beating.release();
  await burial.promise;
  expect(await count('session', `id = 'late' AND expires > ${NOW}`)).toBe(1);
});

test('a waiter is told of a release long before its next beat', async () => {
  await using stage = new Stage(() => server.port);
  const [a, b] = [1, 2].map(() => stage.locks({}, { ttl: '10m', namespace: 'news' }).mutex('job')) as [Lock, Lock];
  const lease = await a.acquire();
  const waiter = track(b.acquire());
  await eventually('it waits', async () => expect((await a.inspect()).claims).toHaveLength(2));
  await lease.release();
  expect(await waitFor(() => waiter.state === 'fulfilled', 5_000)).toBe(true);
});

type Lock = ReturnType<ReturnType<Stage['locks']>['mutex']>;

/** As if nobody had used the lines for an hour; and cleans. */
async function cleanUp(stage: Stage, namespace: string, steps: typeof procedureSteps): Promise<void> {
  await sql(server.port, `UPDATE holdfast_line SET touched = touched - ${HOUR_US} WHERE namespace = '${namespace}'`);
  const database = new Database(new Connections(poolOf(stage.pool()), false, new Tenure()));
  await steps(database, 'holdfast_')('clean_1', [bytes(namespace), 0, bytes(''), 1_000, 5_000_000], {});
}

test.each([
  ['procedures', procedureSteps],
  ['plain statements', statementSteps],
] as const)('tokens never fall, neither by cleaning nor by a clock that was set back: %s', async (title, steps) => {
  await using stage = new Stage(() => server.port);
  const namespace = `tokens of ${title}`;
  const lock = stage.locks({}, { namespace }).mutex('job');
  const first = await lock.run(({ token }) => token);
  // As if the clock had been an hour ahead when it was minted.
  await sql(server.port, `UPDATE holdfast_line SET last = last + ${HOUR_US} WHERE namespace = '${namespace}'`);
  const second = await lock.run(({ token }) => token);
  expect(second - first).toBeGreaterThan(BigInt(HOUR_US) * 1_024n);
  await cleanUp(stage, namespace, steps);
  expect(await count('line', `namespace = '${namespace}'`)).toBe(0);
  expect(await lock.run(({ token }) => token)).toBeGreaterThan(second);
});

test.each([
  ['procedures', procedureSteps],
  ['plain statements', statementSteps],
] as const)('a line in use is never cleaned away: %s', async (title, steps) => {
  await using stage = new Stage(() => server.port);
  const namespace = `used by ${title}`;
  const lease = await stage.locks({}, { namespace }).mutex('job').acquire();
  await cleanUp(stage, namespace, steps);
  expect(await count('line', `namespace = '${namespace}'`)).toBe(1);
  expect(await stage.locks({}, { namespace }).mutex('job').tryAcquire()).toBeUndefined();
  expect(await lease.release()).toBe(true);
});
