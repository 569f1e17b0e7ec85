/**
 * The SQLite engine against the least that SQLite could do: one upsert and one delete on the same driver, with the same
 * settings. It has no order, no sessions and no renewal; who finds it taken tries again after 10 ms.
 */
import { fork } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout } from 'node:timers/promises';
import { DatabaseSync } from '@photostructure/sqlite';
import { Holdfast } from 'holdfast';
import { useOurs } from '../memory/suite.js';
import { type Contest, repeat, together } from '../measure.js';
import { waiting } from './waiting.js';

const SEQUENCE = 50;
export const LOCAL_WAITERS = 50;

export const peer = 'a bare upsert and delete';

export async function* contests(): AsyncIterable<Contest> {
  const folder = mkdtempSync(join(tmpdir(), 'holdfast-bench-'));
  const locks = new Holdfast(`sqlite:${join(folder, 'locks.db')}`);
  const bare = new BareLock(join(folder, 'bare.db'));
  await locks.ready();
  const lock = locks.mutex('bench');
  yield {
    name: 'acquire + release, uncontended',
    operations: SEQUENCE,
    ours: () => repeat(SEQUENCE, () => useOurs(lock)),
    peer: () => repeat(SEQUENCE, () => bare.use()),
    goal: 0.6,
  };
  yield {
    name: `${LOCAL_WAITERS} local waiters on one lock, 1 ms of work`,
    operations: LOCAL_WAITERS,
    ours: () => together(LOCAL_WAITERS, () => lock.run(() => setTimeout(1))),
    peer: () => together(LOCAL_WAITERS, () => bare.use(() => setTimeout(1))),
  };
  yield {
    name: `${LOCAL_WAITERS} local waiters on one lock`,
    operations: LOCAL_WAITERS,
    ours: () => together(LOCAL_WAITERS, () => useOurs(lock)),
    peer: () => together(LOCAL_WAITERS, () => bare.use(() => new Promise(setImmediate))),
    goal: 5,
  };
  await locks.close();
  rmSync(folder, { recursive: true });
}

/** How long the event loop stood still at most while four processes contended for one lock, in milliseconds. */
export async function* facts(): AsyncIterable<string> {
  const folder = mkdtempSync(join(tmpdir(), 'holdfast-bench-'));
  const delays = await Promise.all(Array.from({ length: 4 }, () => contender(join(folder, 'locks.db'))));
  rmSync(folder, { recursive: true });
  const longest = Math.max(...delays.map(({ longestMs }) => longestMs));
  const turns = delays.reduce((sum, delay) => sum + delay.turns, 0);
  yield `4 contending processes: ${Math.round(turns / 3)} turns/s, longest event-loop delay ${longest.toFixed(0)} ms (goal < 100)`;
  yield* waiting();
}

function contender(path: string): Promise<{ longestMs: number; turns: number }> {
  return new Promise((resolve, reject) => {
    const child = fork(join(import.meta.dirname, 'contender.ts'), [path], { execArgv: ['--import', 'tsx'] });
    child.once('message', (message) => resolve(message as { longestMs: number; turns: number }));
    child.once('exit', (code) => reject(new Error(`a contender ended with ${code}`)));
  });
}

class BareLock {
  /** Kept, because this driver closes a database that is collected, whatever its statements do. */
  readonly database: InstanceType<typeof DatabaseSync>;
  readonly #take;
  readonly #drop;
  #count = 0;

  constructor(path: string) {
    const database = new DatabaseSync(path);
    this.database = database;
    database.exec('PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL; PRAGMA wal_autocheckpoint = 0');
    database.exec('CREATE TABLE lock (name TEXT PRIMARY KEY, owner INTEGER, until REAL)');
    this.#take = database.prepare(
      'INSERT INTO lock VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET owner = excluded.owner, until = excluded.until WHERE until <= ?',
    );
    this.#drop = database.prepare('DELETE FROM lock WHERE name = ? AND owner = ?');
  }

  async use(work?: () => Promise<unknown>): Promise<void> {
    this.#count += 1;
    const owner = this.#count;
    while (this.#take.run('bench', owner, Date.now() + 10_000, Date.now()).changes === 0) await setTimeout(10);
    await work?.();
    this.#drop.run('bench', owner);
  }
}
