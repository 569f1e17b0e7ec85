import { expect, test } from 'vitest';
import { waitFor } from '../../servers/wait.js';
import { Kit } from './kit.js';

const kit = new Kit();
/** It takes seven seconds where nothing else is at work. */
const WITHIN_MS = 90_000;

/** As if nobody had used any line for an hour. */
async function age(): Promise<void> {
  await kit.sql(`UPDATE holdfast.holdfast_line SET used = used - interval '1 hour'`);
}

async function clean(namespace: string): Promise<void> {
  await kit.sql(`SELECT holdfast.holdfast_clean($1)`, [namespace]);
}

test('names that were used once leave nothing but their namespace’s floor', async () => {
  await kit.locks().ready();
  // Five hundred at once take a while, and a call has a third of the ttl.
  const locks = kit.locks(kit.url, { namespace: 'once', ttl: '30s' });
  await Promise.all(Array.from({ length: 500 }, (_, at) => locks.mutex(`job-${at}`).run(() => {})));
  expect(await kit.count('claim', `namespace = 'once'`)).toBe(0);
  await age();
  // A beat cleans, every now and then.
  await kit.locks(kit.url, { namespace: 'once', ttl: '2s' }).ready();
  expect(await waitFor(async () => (await kit.count('line', `namespace = 'once'`)) === 0, WITHIN_MS)).toBe(true);
  expect(await kit.count('floor', `namespace = 'once'`)).toBe(1);
});

for (const strategy of ['queue', 'advisory'] as const) {
  test(`${strategy}: tokens never fall, neither by cleaning nor by a clock that was set back`, async () => {
    const namespace = `tokens-${strategy}`;
    const locks = kit.locks(kit.url, { namespace, strategy });
    const first = await locks.mutex('x').run((lease) => lease.token);
    // As if the clock had been an hour ahead when it was minted.
    await kit.sql(`UPDATE holdfast.holdfast_line SET last_token = last_token + 3600000000 WHERE namespace = $1`, [
      namespace,
    ]);
    const second = await locks.mutex('x').run((lease) => lease.token);
    expect(second - first).toBeGreaterThan(3_600_000_000n * 1_024n);
    await age();
    await clean(namespace);
    expect(await kit.count('line', `namespace = '${namespace}'`)).toBe(0);
    const third = await locks.mutex('x').run((lease) => lease.token);
    expect(third).toBeGreaterThan(second);
  });
}

for (const strategy of ['queue', 'advisory'] as const) {
  test(`${strategy}: what once has noted goes when its time is over, though nobody notes another run`, async () => {
    const namespace = `noted-${strategy}`;
    await kit.locks(kit.url, { strategy }).ready();
    const locks = kit.locks(kit.url, { namespace, strategy, ttl: '5s' });
    await locks.once('counts', { atLeast: '1h' }, () => {});
    // `advisory` cleans while it holds something.
    await locks.mutex('held').acquire();
    // More than go with one statement.
    await kit.sql(
      `INSERT INTO holdfast.holdfast_register
        SELECT namespace, name || n, value, token, written, max_read, max_write, now()
          FROM holdfast.holdfast_register, generate_series(1, 250) n WHERE namespace = $1`,
      [namespace],
    );
    const count = (): Promise<number> => kit.count('register', `namespace = '${namespace}'`);
    expect(await waitFor(async () => (await count()) === 1, WITHIN_MS)).toBe(true);
  });
}

test('a line in use is never cleaned away', async () => {
  const locks = kit.locks(kit.url, { namespace: 'used' });
  const lease = await locks.mutex('x').acquire();
  await age();
  await clean('used');
  expect(await kit.count('line', `namespace = 'used'`)).toBe(1);
  expect(await kit.locks(kit.url, { namespace: 'used' }).mutex('x').tryAcquire()).toBeUndefined();
  expect(await lease.release()).toBe(true);
});

test('a session that died leaves no rows', async () => {
  await kit.locks().ready();
  await kit.sql(`SELECT holdfast.holdfast_open('dead', 'graves', 'nobody', 600000)`);
  await kit.sql(`SELECT holdfast.holdfast_enter('dead', 'c1', 'graves', 'lx', 1, 2147483647, 2147483647, true, '')`);
  expect(await kit.count('claim', `session = 'dead'`)).toBe(1);
  await kit.sql(`UPDATE holdfast.holdfast_session SET expires = clock_timestamp() WHERE id = 'dead'`);
  // Nobody wants what it held: the beats of others find it.
  const locks = kit.locks(kit.url, { namespace: 'graves', ttl: '2s' });
  await locks.mutex('y').acquire();
  expect(await waitFor(async () => (await kit.count('session', `id = 'dead'`)) === 0, WITHIN_MS)).toBe(true);
  expect(await waitFor(async () => (await kit.count('claim', `session = 'dead'`)) === 0, WITHIN_MS)).toBe(true);
});
