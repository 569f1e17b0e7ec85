/** What others write into our inboxes and rows costs nobody a process or a lock. */
import { Client } from 'pg';
import { describe, expect, test } from 'vitest';
import type { Holdfast } from '../../../src/index.js';
import { until } from '../../servers/lines.js';
import { Kit } from './kit.js';

const kit = new Kit();

/** The channel that an instance listens to. */
async function inboxes(): Promise<string[]> {
  const rows = await kit.sql<{ inbox: string }>('SELECT DISTINCT inbox FROM holdfast.holdfast_session');
  return rows.map(({ inbox }) => inbox);
}

/** One holds, another waits behind it, and neither has a beat to send for a long time. */
async function staged() {
  const [holder, waiter] = [0, 1].map(() => kit.locks(kit.url, { ttl: '60s' })) as [Holdfast, Holdfast];
  const sentinels = await Promise.all([holder, waiter].map((locks, at) => locks.mutex(`sentinel${at}`).acquire()));
  const lease = await holder.mutex('a').acquire();
  let granted = false;
  const waiting = waiter.mutex('a').acquire();
  waiting.then(
    () => (granted = true),
    () => {},
  );
  await until('it waits', async () => (await holder.mutex('a').inspect()).claims.length === 2);
  const ids = (await holder.mutex('a').inspect()).claims.map(({ id }) => id);
  const channels = await inboxes();
  return {
    ...{ holder, waiter, lease, waiting, channels },
    heldId: ids[0]!,
    waitingId: ids[1]!,
    isGranted: () => granted,
    notify: async (text: string) => {
      for (const inbox of channels) await kit.sql('SELECT pg_notify($1, $2)', [inbox, text]);
    },
    /** Both have heard what was sent before: messages keep their order, and here comes one that shows. */
    heardAll: async () => {
      for (const sentinel of sentinels) {
        const [claim] = (await holder.mutex(sentinel.name).inspect()).claims;
        await holder.evict(sentinel.name, claim!.id, 'the last message');
        await until('it was told', () => sentinel.signal.aborted);
        expect(sentinel.signal.reason).toMatchObject({ reason: 'evicted', detail: 'the last message' });
      }
    },
  };
}

test('messages that we never wrote are passed over', async () => {
  const { lease, waiting, heldId, waitingId, notify } = await staged();
  const words = ['', '-1', '1e3', 'x', '9'.repeat(400), '{', '"', 'null', '[1]'];
  for (const what of ['granted', 'evicted', 'lost', ''])
    for (const id of [heldId, waitingId, 'nobody', '']) for (const word of words) await notify(`${what} ${id} ${word}`);
  expect(lease.held).toBe(true);
  await lease.release();
  expect((await waiting).token).toBeGreaterThan(lease.token);
});

test('a grant that somebody else has sent is not believed', async () => {
  const { lease, waiting, waitingId, notify, heardAll, isGranted } = await staged();
  for (const nonce of ['', ` ${'0'.repeat(32)}`, ` ${waitingId}`]) await notify(`granted ${waitingId} 5${nonce}`);
  await heardAll();
  expect(isGranted()).toBe(false);
  expect(lease.held).toBe(true);
  await lease.release();
  expect((await waiting).token).toBeGreaterThan(lease.token);
});

test('a grant is told with a nonce that only its claim has, and so is one of several that entered together', async () => {
  const { holder, waiter, channels } = await staged();
  const ear = new Client({ connectionString: kit.url });
  await ear.connect();
  try {
    const overheard: string[] = [];
    ear.on('notification', ({ payload = '' }) => void overheard.push(payload));
    for (const channel of channels) await ear.query(`LISTEN "${channel}"`);
    const names = ['x', 'y', 'z'];
    const leases = await Promise.all(names.map((name) => holder.mutex(name).acquire()));
    const waiting = names.map((name) => waiter.mutex(name).acquire());
    for (const name of names)
      await until('it waits', async () => (await holder.mutex(name).inspect()).claims.length === 2);
    await Promise.all(leases.map((lease) => lease.release()));
    await Promise.all(waiting);
    const grants = (): string[] => overheard.filter((text) => text.startsWith('granted '));
    await until('all are overheard', () => grants().length === 3);
    for (const text of grants()) expect(text).toMatch(/^granted \S+ \d+ \S{16,}$/);
    expect(new Set(grants().map((text) => text.split(' ')[3])).size).toBe(3);
  } finally {
    await ear.end();
  }
});

test('who has overheard the nonce of one grant can make no other', async () => {
  const { holder, waiter, channels, waitingId, notify, heardAll, isGranted } = await staged();
  const ear = new Client({ connectionString: kit.url });
  await ear.connect();
  try {
    const overheard: string[] = [];
    ear.on('notification', ({ payload = '' }) => void overheard.push(payload));
    for (const channel of channels) await ear.query(`LISTEN "${channel}"`);
    const other = await holder.mutex('other').acquire();
    const second = waiter.mutex('other').acquire();
    await until('it waits', async () => (await holder.mutex('other').inspect()).claims.length === 2);
    await other.release();
    await second;
    await until('the grant is overheard', () => overheard.some((text) => text.startsWith('granted ')));
    const [, , token, nonce] = overheard.find((text) => text.startsWith('granted '))!.split(' ');
    await notify(`granted ${waitingId} ${token} ${nonce}`);
    await heardAll();
    expect(isGranted()).toBe(false);
  } finally {
    await ear.end();
  }
});

test('that a claim was evicted is not believed, but looked up', async () => {
  const { lease, waiting, heldId, waitingId, notify, heardAll } = await staged();
  for (const id of [heldId, waitingId, 'nobody']) await notify(`evicted ${id} "because we say so"`);
  await heardAll();
  expect(lease.held).toBe(true);
  expect(await lease.release()).toBe(true);
  await waiting;
});

test('a reason for an eviction that is no JSON is told as it is', async () => {
  const locks = kit.locks(kit.url, { ttl: '2s' });
  const [lease, other] = [await locks.mutex('b').acquire(), await locks.mutex('c').acquire()];
  const [claim] = (await locks.mutex('b').inspect()).claims;
  await kit.sql('UPDATE holdfast.holdfast_claim SET evicted = $1 WHERE id = $2', ['not JSON', claim!.id]);
  await new Promise((resolve) => lease.signal.addEventListener('abort', resolve));
  expect(lease.signal.reason).toMatchObject({ reason: 'evicted', detail: 'not JSON' });
  expect(other.held).toBe(true);
});

describe('rows that nobody of ours has made', () => {
  const CLAIM = `INSERT INTO holdfast.holdfast_claim (session, id, namespace, line, serial, weight, held, token, since, note, evicted)`;

  /** A living session with a channel that is none, and lines that can't be counted, more than are looked at together. */
  async function odd(namespace: string): Promise<void> {
    await kit.sql(
      `INSERT INTO holdfast.holdfast_session VALUES ($1 || ' ever', $1, '', '1 day', 'infinity'),
        ($1 || ' never', $1, '', '-1 day', '-infinity')`,
      [namespace],
    );
    await kit.sql(
      `INSERT INTO holdfast.holdfast_line
         SELECT $1, 'lodd ' || at, 9223372036854775807, at, 7, -5, '-infinity' FROM generate_series(0, 99) at`,
      [namespace],
    );
    await kit.sql(
      `${CLAIM} SELECT who, at || who || one, $1, 'lodd ' || at, -1, CASE WHEN at % 2 = 0 THEN 1 ELSE 9223372036854775807 END,
           at % 3 = 0, at, now(), '{', '{'
         FROM generate_series(0, 99) at, unnest(ARRAY[$1 || ' ever', 'nobody']) who, unnest(ARRAY['a', 'b']) one`,
      [namespace],
    );
  }

  test('keep nobody from a lock of the dead, nor from a listing', async () => {
    // It does not beat before its death is noticed.
    const dying = kit.locks(kit.url, { ttl: '60s', namespace: 'odd rows' });
    const waiter = kit.locks(kit.url, { ttl: '3s', namespace: 'odd rows' });
    await dying.mutex('job').acquire();
    const [{ id: session }] = (await kit.sql<{ id: string }>(
      `SELECT id FROM holdfast.holdfast_session WHERE namespace = 'odd rows'`,
    )) as [{ id: string }];
    const kept = await waiter.mutex('kept').acquire();
    const waiting = waiter.mutex('job').acquire({ timeout: '30s' });
    await until('it waits', async () => (await waiter.mutex('job').inspect()).claims.length === 2);
    await odd('odd rows');
    await kit.sql(`UPDATE holdfast.holdfast_session SET expires = now() WHERE id = $1`, [session]);
    const next = await waiting;
    const names: string[] = [];
    for await (const { name } of waiter.inspect()) names.push(name);
    expect(names).toEqual(expect.arrayContaining(['job', 'kept']));
    expect(await next.release()).toBe(true);
    expect(await kept.release()).toBe(true);
  });

  test('in a line let nobody pass those who wait', async () => {
    const { lease, waiting, holder, isGranted } = await staged();
    await kit.sql(
      `${CLAIM} SELECT 'nobody', at, namespace, line, 1, 1, false, at, now(), '', NULL
         FROM generate_series(1, 5) at, holdfast.holdfast_line WHERE line = 'la'`,
    );
    expect(await lease.release()).toBe(true);
    expect(await holder.mutex('a').tryAcquire()).toBeUndefined();
    await until('it is granted', isGranted);
    expect((await waiting).token).toBeGreaterThan(lease.token);
  });
});
