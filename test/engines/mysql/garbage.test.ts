/** Rows that nobody of ours has made: they keep nobody from a lock, nor from a listing. */
import { afterAll, beforeAll, expect, test } from 'vitest';
import { Holdfast } from '../../../src/index.js';
import { queued } from '../../servers/lines.js';
import { sql, startMariadb } from '../../servers/mariadb.js';
import type { Server } from '../../servers/server.js';

let server: Server;

beforeAll(async () => {
  server = await startMariadb();
  // Who may not run procedures does the same steps by plain statements.
  await sql(server.port, 'CREATE USER plain; GRANT SELECT, INSERT, UPDATE, DELETE, CREATE ON test.* TO plain');
});
afterAll(() => server.stop());

const HUGE = '9223372036854775807';

/** Dead sessions, more than are buried together, that hold what can't be counted; and a line of a kind that there is not. */
async function addOdd(namespace: string): Promise<void> {
  for (let at = 0; at < 40; at += 1) {
    await sql(
      server.port,
      `INSERT INTO holdfast_session VALUES ('${namespace} odd ${at}', '${namespace}', -1, -${at});
       INSERT INTO holdfast_line VALUES ('${namespace}', ${at % 4}, 'odd ${at}', ${HUGE}, -${HUGE}, 7, -5, 3, ${HUGE});
       INSERT INTO holdfast_claim VALUES
         ('${namespace}', ${at % 4}, 'odd ${at}', ${at}, '${namespace} odd ${at}', 'a', 1, ${HUGE}, 1, 0, 0, '{', '{'),
         ('${namespace}', ${at % 4}, 'odd ${at}', ${HUGE}, 'nobody', '${namespace} ${at}', 1, -1, 0, 0, 0, '', NULL)`,
    );
  }
}

test.each(['root', 'plain'])('odd rows keep nobody from a lock of the dead: %s', async (user) => {
  const url = `mysql://${user}@127.0.0.1:${server.port}/test`;
  // It does not beat before its death is noticed.
  await using dying = new Holdfast(url, { ttl: '60s', namespace: user });
  await using waiter = new Holdfast(url, { ttl: '3s', namespace: user });
  await dying.mutex('job').acquire();
  const [session] = await sql(server.port, `SELECT id FROM holdfast_session WHERE namespace = '${user}'`);
  const kept = await waiter.mutex('kept').acquire();
  const waiting = waiter.mutex('job').acquire({ timeout: '30s' });
  await queued(waiter.mutex('job'), 1);
  await addOdd(user);
  await sql(server.port, `UPDATE holdfast_session SET expires = 1 WHERE id = '${String(session!['id'])}'`);
  const next = await waiting;
  const names: string[] = [];
  for await (const { name } of waiter.inspect()) names.push(name);
  expect(names).toEqual(expect.arrayContaining(['job', 'kept']));
  expect(await next.release()).toBe(true);
  expect(await kept.release()).toBe(true);
});

test.each(['root', 'plain'])('claims of nobody in a line of ours have no turn, and go: %s', async (user) => {
  const namespace = `${user} line`;
  const url = `mysql://${user}@127.0.0.1:${server.port}/test`;
  await using holder = new Holdfast(url, { ttl: '60s', namespace });
  await using waiter = new Holdfast(url, { ttl: '60s', namespace });
  const held = await holder.mutex('job').acquire();
  // Before and after whoever waits: what can't be counted, what fits, and what a session had that somebody has deleted.
  const add = (at: number): Promise<unknown> =>
    sql(
      server.port,
      ['1', '-1', HUGE, '2147483647']
        .map(
          (weight, more) =>
            `INSERT INTO holdfast_claim SELECT namespace, kind, name, last + ${at + more}, 'nobody', '${namespace} ${at} ${weight}', 1, ${weight},
             ${more % 2}, 0, 0, '', NULL FROM holdfast_line WHERE namespace = '${namespace}' AND name = 'job'`,
        )
        .join(';'),
    );
  await add(1);
  const waiting = waiter.mutex('job').acquire({ timeout: '20s' });
  await queued(waiter.mutex('job'), 1);
  await add(1_000_000);
  await sql(server.port, `UPDATE holdfast_line SET waiting = waiting + 3 WHERE namespace = '${namespace}'`);
  expect(await held.release()).toBe(true);
  const next = await waiting;
  expect(await next.release()).toBe(true);
  expect(await waiter.mutex('job').tryAcquire()).toBeDefined();
});
