import { Client } from 'pg';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { sql, startPostgres } from '../../servers/postgres.js';
import type { Server } from '../../servers/server.js';
import { Sandbox } from './sandbox.js';

const box = new Sandbox();
let server: Server;
let url: string;

beforeAll(async () => {
  server = await startPostgres();
  url = `postgres://postgres@127.0.0.1:${server.port}/postgres`;
});

afterAll(async () => {
  await box[Symbol.asyncDispose]();
  await server.stop();
});

test('what schema print writes makes tables that work', async () => {
  const { code, stdout } = await box.run(['schema', 'print', '--url', `${url}?schema=printed`]);
  expect(code).toBe(0);
  await sql(server.port, stdout);
  const locks = `${url}?schema=printed&migrate=false`;
  expect(await box.run(['run', 'x', '-w', '40s', '--url', locks, '--', 'echo', 'locked'])).toMatchObject({
    code: 0,
    stdout: 'locked\n',
  });
  expect((await box.run(['schema', 'apply', '--url', locks])).stdout).toBe('up to date\n');
});

test('schema apply may be run by many at once', async () => {
  const runs = Array.from({ length: 4 }, () => box.run(['schema', 'apply', '--url', `${url}?schema=applied`]));
  const ended = await Promise.all(runs);
  expect(ended.map(({ code }) => code)).toEqual([0, 0, 0, 0]);
  expect(ended.filter(({ stdout }) => stdout !== 'up to date\n')).toHaveLength(1);
});

test('without tables and without the right to make them, it is said what to run', async () => {
  await sql(server.port, `CREATE ROLE guest LOGIN`);
  const guest = url.replace('postgres@', 'guest:opensesame@');
  const { code, stderr } = await box.run(['run', 'x', '-n', '--url', `${guest}?schema=theirs`, '--', 'true']);
  expect(code).toBe(69);
  expect(stderr).toContain('holdfast schema apply');
  expect(stderr).not.toContain('opensesame');
});

test('schema apply behind a migration lock that another has says so, and ends with a code of its own', async () => {
  const stranger = new Client(url);
  await stranger.connect();
  try {
    await stranger.query(`SELECT pg_advisory_lock(hashtextextended('holdfast migration', 0))`);
    const { code, stderr } = await box.run(['schema', 'apply', '--url', `${url}?schema=behind`]);
    expect(code).toBe(73);
    expect(stderr).toContain('migration lock');
  } finally {
    await stranger.end();
  }
});

test('an engine without a schema has nothing to make', async () => {
  expect(await box.run(['schema', 'print'])).toMatchObject({ code: 0, stdout: '-- this engine has no schema\n' });
  expect(await box.run(['schema', 'drop'])).toMatchObject({ code: 64 });
});
