/** The functions of `queue`, called by hand, where two calls have to meet inside the server. */
import { Client } from 'pg';
import { afterEach, beforeAll, expect, test } from 'vitest';
import { Holdfast } from '../../../src/index.js';
import { track } from '../../../src/conformance/tracked.js';
import { waitFor } from '../../servers/wait.js';
import { Kit } from './kit.js';

const kit = new Kit();
const WITHIN_MS = 30_000;
const ALL = 2 ** 31 - 1;

const clients: Client[] = [];

beforeAll(async () => {
  await using locks = new Holdfast(kit.url);
  await locks.ready();
});

afterEach(async () => {
  for (const client of clients.splice(0)) await client.end();
});

/** A connection of its own: a call that waits holds up no other. */
async function connect(): Promise<Client> {
  const client = new Client(kit.url);
  await client.connect();
  clients.push(client);
  return client;
}

async function ask<T>(client: Client, text: string, values: readonly unknown[] = []): Promise<T> {
  const { rows } = await client.query<{ answer: T }>(`SELECT ${text} AS answer`, [...values]);
  return rows[0]!.answer;
}

function open(client: Client, session: string, namespace: string): Promise<unknown> {
  return ask(client, `holdfast.holdfast_open($1, $2, $1, 600000)`, [session, namespace]);
}

function enter(client: Client, session: string, namespace: string): Promise<string> {
  return ask(client, `holdfast.holdfast_enter($1, $1 || '-1', $2, 'ljob', 1, ${ALL}, ${ALL}, true, '')`, [
    session,
    namespace,
  ]);
}

function leave(client: Client, session: string, namespace: string): Promise<boolean> {
  return ask(client, `holdfast.holdfast_leave($1, $1 || '-1', $2, 'ljob')`, [session, namespace]);
}

/** How many statements wait for a lock. */
async function blocked(): Promise<number> {
  const [row] = await kit.sql<{ count: string }>(
    `SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND backend_type = 'client backend'`,
  );
  return Number(row!.count);
}

test('of enters that meet inside the server one is granted, and the others wait behind it', async () => {
  const sessions = ['a', 'b', 'c', 'd'];
  const entering = await Promise.all(sessions.map(() => connect()));
  for (const [at, session] of sessions.entries()) await open(entering[at]!, session, 'meeting');
  // The line is there, and nobody has it.
  await enter(entering[0]!, 'a', 'meeting');
  await leave(entering[0]!, 'a', 'meeting');
  const other = await connect();
  await other.query('BEGIN');
  await other.query(`SELECT FROM holdfast.holdfast_line WHERE namespace = 'meeting' FOR UPDATE`);
  const answers = sessions.map((session, at) => enter(entering[at]!, session, 'meeting'));
  expect(await waitFor(async () => (await blocked()) === sessions.length, WITHIN_MS)).toBe(true);
  await other.query('COMMIT');
  expect((await Promise.all(answers)).filter((answer) => answer.startsWith('h'))).toHaveLength(1);
  expect(await kit.count('claim', `namespace = 'meeting' AND held`)).toBe(1);
});

test('a session whose beat is under way is not buried', async () => {
  const [beating, burying] = [await connect(), await connect()];
  await open(beating, 'late', 'graveyard');
  await kit.sql(`UPDATE holdfast.holdfast_session SET expires = clock_timestamp() WHERE id = 'late'`);
  await beating.query('BEGIN');
  // As a beat does that was in time, and is not committed yet.
  await beating.query(`UPDATE holdfast.holdfast_session SET expires = clock_timestamp() + ttl WHERE id = 'late'`);
  const burial = track(ask<string>(burying, `holdfast.holdfast_bury('graveyard')`));
  // Whether it waits for the beat or not.
  expect(await waitFor(async () => burial.state !== 'pending' || (await blocked()) === 1, WITHIN_MS)).toBe(true);
  await beating.query('COMMIT');
  expect(Number(await burial.promise)).toBe(0);
  expect(await kit.count('session', `id = 'late'`)).toBe(1);
});

test('a grant is told to the channel of its session, with the claim and its token', async () => {
  const [a, b] = [await connect(), await connect()];
  const heard: string[] = [];
  b.on('notification', ({ payload = '' }) => heard.push(payload));
  await open(a, 'telling', 'news');
  await open(b, 'told', 'news');
  await b.query('LISTEN told');
  await enter(a, 'telling', 'news');
  expect(await enter(b, 'told', 'news')).toMatch(/^w/);
  expect(await leave(a, 'telling', 'news')).toBe(true);
  expect(await waitFor(() => heard.length > 0, 5_000)).toBe(true);
  const [row] = await kit.sql<{ token: string }>(
    `SELECT token::text FROM holdfast.holdfast_claim WHERE session = 'told' AND held`,
  );
  expect(heard).toEqual([`granted told-1 ${row!.token}`]);
});
