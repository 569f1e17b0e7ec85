/** Rows of `row` and `version` that another changes between two statements of ours. */
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { mysql } from '../../../src/engines/mysql/index.js';
import { NOW } from '../../../src/engines/mysql/tables.js';
import { Holdfast } from '../../../src/index.js';
import { gate, track } from '../../../src/conformance/tracked.js';
import { sql, startMariadb } from '../../servers/mariadb.js';
import type { Server } from '../../servers/server.js';
import { eventually } from '../../servers/wait.js';
import { MARIADB, Stage } from './kit.js';
import { overheard } from './overheard.js';

let server: Server;

beforeAll(async () => {
  server = await startMariadb();
});
afterAll(() => server.stop());

describe.each(['row', 'version'] as const)('%s', (strategy) => {
  const rowOf = (name: string): string => `holdfast_${strategy} WHERE namespace = 'rows' AND name = '${name}'`;
  const set = (name: string, changes: string): Promise<unknown> =>
    sql(server.port, `UPDATE ${rowOf(name).replace(' WHERE', ` SET ${changes} WHERE`)}`);

  test('a release frees nothing that another has taken over', async () => {
    await using stage = new Stage(() => server.port);
    const actor = await stage.actor({ strategy }, 'rows');
    const { claim } = await actor.hold({ name: 'taken over' });
    await set('taken over', `owner = 'another', token = token + 1`);
    expect(await actor.session.leave(claim)).toBe(false);
    expect(await sql(server.port, `SELECT 1 AS one FROM ${rowOf('taken over')} AND owner = 'another'`)).toHaveLength(1);
  });

  test('a lock that has run out is not renewed, and its holder is told', async () => {
    await using stage = new Stage(() => server.port);
    const actor = await stage.actor({ strategy }, 'rows');
    const { claim } = await actor.hold({ name: 'run out' });
    expect(await actor.beat({ held: [claim] })).toEqual({ alive: true });
    expect(actor.lossOf(claim)).toBeUndefined();
    await set('run out', `until = ${NOW}`);
    await actor.beat({ held: [claim] });
    expect(actor.lossOf(claim)).toEqual({ reason: 'session' });
    expect(await sql(server.port, `SELECT 1 AS one FROM ${rowOf('run out')} AND until > ${NOW}`)).toEqual([]);
  });

  test('a row that is there is given a token above its own, whatever the clock says', async () => {
    await using stage = new Stage(() => server.port);
    const lock = stage.locks({ strategy }, { namespace: 'rows' }).mutex('ahead');
    const first = await lock.run(({ token }) => token);
    await set('ahead', 'token = token + 3600000000');
    expect(await lock.run(({ token }) => token)).toBeGreaterThan(first + 3_600_000_000n * 1_024n);
  });
});

test.for(['row', 'version'] as const)(
  '%s: a lock is taken over for a whole ttl, whatever order assignments are made in',
  async (strategy, { skip }) => {
    skip(!MARIADB, 'MySQL makes assignments in one order only');
    await using stage = new Stage(() => server.port);
    const pool = stage.pool({ connectionLimit: 1 });
    const actor = await stage.actor({ strategy }, 'rows', pool);
    const first = await actor.hold({ name: 'order' });
    await actor.session.leave(first.claim);
    // After we have looked at how it is set.
    await pool.promise().query("SET sql_mode = 'SIMULTANEOUS_ASSIGNMENT'");
    const { token } = await actor.hold({ name: 'order' });
    expect(token).toBeGreaterThan(first.token);
    const lasting = `SELECT 1 AS one FROM holdfast_${strategy} WHERE name = 'order' AND until > ${NOW} + 300000000`;
    expect(await sql(server.port, lasting)).toHaveLength(1);
  },
);

/** A lock of `version` whose first statement like this one is sent only when somebody lets it. */
async function heldBack(
  stage: Stage,
  like: RegExp,
): Promise<{ locks: Holdfast; isHeldBack: () => Promise<void>; letGo: () => void }> {
  const late = gate();
  let isHeld = false;
  const pool = overheard(stage.pool(), async (statement) => {
    if (isHeld || !like.test(statement)) return;
    isHeld = true;
    await late.opened;
  });
  const locks = new Holdfast(mysql(pool, { strategy: 'version' }), { namespace: 'rows', ttl: '10m' });
  await locks.ready();
  const isHeldBack = (): Promise<void> =>
    eventually('the statement is on its way', async () => expect(isHeld).toBe(true));
  return { locks, isHeldBack, letGo: () => late.open() };
}

test('version: a version that another has taken and freed since it was read is not given out twice', async () => {
  await using stage = new Stage(() => server.port);
  const other = stage.locks({ strategy: 'version' }, { namespace: 'rows' }).mutex('overtaken');
  await other.run(() => {});
  const { locks, isHeldBack, letGo } = await heldBack(stage, /^UPDATE holdfast_version SET token/);
  const late = track(locks.mutex('overtaken').acquire());
  await isHeldBack();
  const token = await other.run((lease) => lease.token);
  letGo();
  expect((await late.promise).token).toBeGreaterThan(token);
  await locks.close();
});

test('version: of two who find no row only one has made it', async () => {
  await using stage = new Stage(() => server.port);
  const other = stage.locks({ strategy: 'version' }, { namespace: 'rows' }).mutex('new');
  await stage.locks({ strategy: 'version' }, { namespace: 'rows' }).ready();
  const { locks, isHeldBack, letGo } = await heldBack(stage, /^INSERT INTO holdfast_version/);
  const late = locks.mutex('new').tryAcquire();
  await isHeldBack();
  const lease = await other.acquire();
  letGo();
  expect(await late).toBeUndefined();
  expect(await lease.release()).toBe(true);
  await locks.close();
});
