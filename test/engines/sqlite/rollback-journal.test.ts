/**
 * A file without a write-ahead log, as it is where SQLite is too old for one: there a commit is in the way of those who read,
 * and they in the way of a commit. So what comes after a commit may find the file busy.
 */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { DatabaseSync } from '@photostructure/sqlite';
import { type EngineSetup, Holdfast } from 'holdfast';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { type Database, loadDriver, type Statement } from '../../../src/engines/sqlite/client/driver.js';
import { SqliteEngine } from '../../../src/engines/sqlite/engine.js';
import { sqlite } from '../../../src/engines/sqlite/index.js';
import { openFile } from '../../../src/engines/sqlite/schema.js';
import { Worker } from './processes.js';

let folder: string;
let file: string;
let opened: Holdfast[];
let writer: Worker;

beforeEach(async () => {
  folder = mkdtempSync(join(tmpdir(), 'holdfast-'));
  file = join(folder, 'locks.db');
  opened = [];
  // By another process, which ends: this driver closes a file only when its statements have been collected.
  const maker = new Worker();
  await maker.ask('open', { url: `sqlite:${file}`, ttl: '10s' });
  await maker.ask('acquire', { name: 'made' });
  await maker.end();
  const database = new DatabaseSync(file);
  // A file keeps the journal mode that it was made with.
  expect(database.prepare('PRAGMA journal_mode = DELETE').get()).toEqual({ journal_mode: 'delete' });
  database.close();
  // Another process that is at it all the time.
  writer = new Worker();
  await writer.ask('open', { url: `sqlite:${file}`, ttl: '10s' });
});

afterEach(async () => {
  await writer.end();
  await Promise.all(opened.map((locks) => locks.close()));
  rmSync(folder, { recursive: true, force: true });
});

function open(): Holdfast {
  const locks = new Holdfast(`sqlite:${file}`, { ttl: '10s' });
  opened.push(locks);
  return locks;
}

/** Whose file is busy for every read between a commit and the next turn of the event loop: another commits just then. */
function busyAfterCommit(database: Database): Database {
  let isBusy = false;
  const prepare = (sql: string): Statement => {
    const statement = database.prepare(sql);
    const read = (...values: unknown[]): Record<string, unknown> | undefined => {
      if (isBusy && sql.startsWith('SELECT')) throw Object.assign(new Error('database is locked'), { errcode: 5 });
      return statement.get(...values);
    };
    const run = (...values: unknown[]): { changes: number | bigint } => {
      const result = statement.run(...values);
      isBusy = sql === 'COMMIT';
      setImmediate(() => (isBusy = false));
      return result;
    };
    return {
      get: read,
      run,
      all: (...values) => statement.all(...values),
      setReadBigInts: (on) => statement.setReadBigInts(on),
    };
  };
  return { prepare, exec: (sql) => database.exec(sql), close: () => database.close() };
}

test('what was committed is not done again because the file was busy when others were told of it', async () => {
  const source = {
    ...sqlite(file),
    connect: async (setup: EngineSetup) =>
      new SqliteEngine(file, busyAfterCommit(openFile(await loadDriver(), file)), setup),
  };
  const locks = new Holdfast(source, { ttl: '10s' });
  opened.push(locks);
  const held = await open().mutex('busy').acquire();
  // Whoever waits is told after each commit, and must read for it.
  const waiting = locks.mutex('busy').acquire();
  for (let at = 0; at < 20; at += 1) expect(await (await locks.mutex('job').acquire()).release()).toBe(true);
  await held.release();
  expect(await (await waiting).release()).toBe(true);
});

test('a register can be read while others commit', async () => {
  const locks = open();
  await locks.mutex('job').run((lease) => locks.register('job').set('done', lease));
  void writer.ask('toil', { name: 'toil' }).catch(() => {});
  for (let at = 0; at < 300; at += 1) expect(await locks.register('job').get()).toMatchObject({ value: 'done' });
});
