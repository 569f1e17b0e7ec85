/** Rows that somebody deletes by hand cost what they stood for: nobody else's lock, no other session, and no name for ever. */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { DatabaseSync } from '@photostructure/sqlite';
import { Holdfast, type Lease } from 'holdfast';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { track } from '../../../src/conformance/tracked.js';
import { eventually } from '../../servers/wait.js';
import { Random } from '../../simulation/random.js';

let folder: string;
let file: InstanceType<typeof DatabaseSync>;
let opened: Holdfast[];

beforeEach(async () => {
  folder = mkdtempSync(join(tmpdir(), 'holdfast-'));
  opened = [];
  // A try may take a third of the ttl, and this machine may have much else to do.
  await open('10m').mutex('made').tryAcquire();
  file = new DatabaseSync(join(folder, 'locks.db'));
  file.exec('PRAGMA busy_timeout = 10000');
  await opened[0]!.close();
});

afterEach(async () => {
  file.close();
  await Promise.all(opened.map((locks) => locks.close()));
  rmSync(folder, { recursive: true, force: true });
});

function open(ttl: '1s' | '2s' | '5s' | '10m'): Holdfast {
  const locks = new Holdfast(`sqlite:${join(folder, 'locks.db')}`, { ttl });
  opened.push(locks);
  return locks;
}

async function standing(count: number): Promise<void> {
  await eventually('they stand in line', async () =>
    expect(file.prepare('SELECT count(*) AS n FROM claim').get()).toEqual({ n: count }),
  );
}

/** A holder and two who wait, each of a session of its own. */
async function line(): Promise<{ lease: Lease; second: Promise<Lease>; third: Promise<Lease> }> {
  const lease = await open('2s').mutex('job').acquire();
  const second = open('2s').mutex('job').acquire();
  await standing(2);
  const third = open('2s').mutex('job').acquire();
  await standing(3);
  return { lease, second, third };
}

const HOLDER = 'held = 1';
const FIRST_WAITER = 'token = (SELECT min(token) FROM claim WHERE held = 0)';

describe('a row that is deleted by hand', () => {
  test('a line’s: the holder keeps its lock, those who wait their places, and a newcomer is refused', async () => {
    const { lease, second, third } = await line();
    const later = track(second);
    file.exec('DELETE FROM line');
    expect(await open('10m').mutex('job').tryAcquire()).toBeUndefined();
    file.exec('DELETE FROM line');
    expect(await lease.release()).toBe(true);
    const next = await second;
    expect(later.state).toBe('fulfilled');
    file.exec('DELETE FROM line');
    expect(next.held).toBe(true);
    expect(await next.release()).toBe(true);
    expect(await (await third).release()).toBe(true);
    expect(file.prepare('SELECT * FROM line').all()).toEqual([]);
  });

  test('a line’s: it is known how many permits it has, though nobody new says so', async () => {
    const locks = [open('10m'), open('10m'), open('10m'), open('10m')];
    const permits = locks.map((each) => each.semaphore('pool', 2));
    const held = [await permits[0]!.acquire(), await permits[1]!.acquire()];
    file.exec('DELETE FROM line');
    expect(await permits[2]!.tryAcquire()).toBeUndefined();
    await expect(open('10m').semaphore('pool', 9).acquire()).rejects.toMatchObject({
      code: 'HOLDFAST_CAPACITY',
    });
    const waiting = [permits[2]!.acquire(), permits[3]!.acquire()];
    await standing(4);
    file.exec('DELETE FROM line');
    for (const lease of held) expect(await lease.release()).toBe(true);
    for (const lease of await Promise.all(waiting)) expect(await lease.release()).toBe(true);
  });

  test('a holder’s claim: the name is the next one’s, and for those who only try as well', async () => {
    const { second, third } = await line();
    file.exec(`DELETE FROM claim WHERE ${HOLDER}`);
    expect(await (await second).release()).toBe(true);
    expect(await (await third).release()).toBe(true);
    await open('10m').mutex('job').acquire();
    file.exec(`DELETE FROM claim`);
    expect(await open('10m').mutex('job').tryAcquire()).toBeDefined();
  });

  test('a waiter’s claim: those behind it move up', async () => {
    const { lease, second, third } = await line();
    second.catch(() => {});
    file.exec(`DELETE FROM claim WHERE ${FIRST_WAITER}`);
    expect(await lease.release()).toBe(true);
    await Promise.all([second, third].map(async (each) => expect(await (await each).release()).toBe(true)));
  });

  test('one permit’s claim: that permit is free again, though the others are never all given back', async () => {
    const permits = Array.from({ length: 4 }, () => open('2s').semaphore('pool', 3));
    for (const each of permits.slice(0, 3)) await each.acquire();
    const waiting = permits[3]!.acquire({ timeout: '20s' });
    await standing(4);
    file.exec('DELETE FROM claim WHERE token = (SELECT min(token) FROM claim)');
    await waiting;
    file.exec('DELETE FROM claim WHERE token = (SELECT max(token) FROM claim)');
    expect(await open('10m').semaphore('pool', 3).tryAcquire()).toBeDefined();
  });

  test.each([
    ['holder’s', HOLDER],
    ['waiter’s', FIRST_WAITER],
  ])('a %s session: it alone is over, and its claims with it', async (_whose, claims) => {
    const { lease, second, third } = await line();
    second.catch(() => {});
    file.exec(`DELETE FROM session WHERE id IN (SELECT session FROM claim WHERE ${claims})`);
    // Its own claim is there until somebody looks: until then the lock is not free, and may be given back.
    if (claims === FIRST_WAITER) expect(lease.held).toBe(true);
    await lease.release();
    await Promise.all([second, third].map(async (each) => expect(await (await each).release()).toBe(true)));
  });

  test('claims of nobody go with the next beat of anybody, from lines that are held, waited in or used by none', async () => {
    const { lease, second, third } = await line();
    const add = file.prepare(`INSERT INTO claim VALUES (?, ?, ?, 'holdfast', 'lock', ?, 1, ?, ?, ?, 0, '{', NULL)`);
    // Also as what no session can be called.
    for (const session of ['nobody', Buffer.from('nobody'), '\u{1f47b}'])
      for (const [at, name] of ['job', 'made', 'idle'].entries())
        for (const held of [0, 1]) add.run(session, `${name} ${held}`, at, name, 2 ** 62, -1, held);
    file.exec(`INSERT INTO watch VALUES ('nobody', 'another boot', 1, 1)`);
    const left = (table: string): unknown =>
      file.prepare(`SELECT count(*) AS n FROM ${table} WHERE session NOT IN (SELECT id FROM session)`).get();
    await eventually('they are gone', async () => expect([left('claim'), left('watch')]).toEqual([{ n: 0 }, { n: 0 }]));
    expect(await lease.release()).toBe(true);
    for (const each of [second, third]) expect(await (await each).release()).toBe(true);
  });

  test('a session’s: nobody has to wait for anything to have its name', async () => {
    await open('10m').mutex('job').acquire();
    file.exec('DELETE FROM session');
    expect(await open('10m').mutex('job').tryAcquire()).toBeDefined();
  });

  test('the mint’s: tokens go on to grow', async () => {
    const locks = open('10m');
    const { token } = await locks.mutex('job').acquire();
    file.exec('UPDATE claim SET token = token + 1000000000; DELETE FROM mint');
    const later = await locks.mutex('other').acquire();
    expect(later.token).toBeGreaterThan(token + 1_000_000_000n);
    expect(file.prepare('SELECT count(*) AS n FROM mint').get()).toEqual({ n: 1 });
  });
});

test('odd rows beside ours cost nobody a beat, and are not listed', async () => {
  const locks = open('1s');
  const lease = await locks.mutex('job').acquire();
  const huge = '9223372036854775807';
  const odd = [`x'00ff'`, `'{'`, huge, `-1`, `1e300`, `''`];
  for (const [at, value] of odd.entries()) {
    file.exec(
      `INSERT INTO session VALUES (${value}, 'holdfast', ${value}, ${huge}, ${value}, ${value}, ${value}, ${value}, ${huge})`,
    );
    file.exec(`INSERT INTO line VALUES ('holdfast', 'lock', 'odd ${at}', ${value}, ${value}, ${value})`);
    file.exec(`INSERT INTO line VALUES ('holdfast', ${value}, ${value}, ${huge}, ${huge}, ${huge})`);
    for (const kind of [value, `'lock'`]) {
      const session = `${kind} || 'of nobody'`;
      file.exec(
        `INSERT INTO claim VALUES (${session}, ${value}, ${value}, 'holdfast', ${kind}, ${value}, ${huge}, ${huge}, ${huge}, ${at % 2}, ${value}, ${value}, ${value})`,
      );
    }
    file.exec(`INSERT INTO watch VALUES (${value}, ${value}, ${huge}, ${value})`);
  }
  const listed: string[] = [];
  for await (const { name } of locks.inspect()) listed.push(name);
  expect(listed).toEqual(['job']);
  const until = Date.now() + 2_000;
  while (Date.now() < until) {
    for (const at of odd.keys()) expect(await (await locks.mutex(`odd ${at}`).tryAcquire())?.release()).toBe(true);
    await sleep(50);
  }
  expect(lease.held).toBe(true);
  expect(await lease.release()).toBe(true);
});

test.each([
  ['held', 'weight = capacity, held = 1'],
  ['held, with less than no weight', 'weight = -9223372036854775807, held = 1'],
  ['held, as nobody would say it', "weight = capacity, held = 'x'"],
  ['waiting, with less than no weight', 'weight = -9223372036854775807, held = 0'],
  ['waiting', 'weight = 1, held = 0'],
])('a claim of nobody in a line of ours lets nobody in and past nobody: %s', async (_what, odd) => {
  const { lease, second, third } = await line();
  const granted: string[] = [];
  void second.then(() => granted.push('second'));
  void third.then(() => granted.push('third'));
  addNobody(odd);
  expect(await open('10m').mutex('job').tryAcquire()).toBeUndefined();
  expect(file.prepare("SELECT count(*) AS n FROM claim WHERE held <> 0 AND session <> 'nobody'").get()).toEqual({
    n: 1,
  });
  expect(granted).toEqual([]);
  expect(await lease.release()).toBe(true);
  expect(await (await second).release()).toBe(true);
  expect(await (await third).release()).toBe(true);
  expect(granted).toEqual(['second', 'third']);
  await standing(0);
});

test('a claim of nobody gets no turn when the holder leaves before anybody has looked', async () => {
  const { lease, second, third } = await line();
  addNobody('weight = -9223372036854775807, held = 0');
  expect(await lease.release()).toBe(true);
  expect(file.prepare("SELECT count(*) AS n FROM claim WHERE held = 1 AND session <> 'nobody'").get()).toEqual({
    n: 1,
  });
  expect(await (await second).release()).toBe(true);
  expect(await (await third).release()).toBe(true);
});

/** Two claims of no session in the line of the holder, before all others. */
function addNobody(odd: string): void {
  for (const token of [1, 2])
    file.exec(`INSERT INTO claim SELECT 'nobody', 'odd ${token}', ${token}, namespace, kind, name, serial, weight, capacity, held,
      since, note, evicted FROM claim WHERE ${HOLDER} AND session <> 'nobody'`);
  file.exec(`UPDATE claim SET ${odd} WHERE session = 'nobody'`);
}

/** Deletes rows at random, and remembers what they stood for. */
class Surgeon {
  /** Tokens of claims, in the engine's scale. */
  readonly destroyed = new Set<bigint>();
  readonly #random: Random;

  constructor(random: Random) {
    this.#random = random;
  }

  operate(): void {
    const table = this.#random.pick(['line', 'line', 'claim', 'session', 'mint', 'watch']);
    file.exec('BEGIN IMMEDIATE');
    const key = { line: 'name', claim: 'id', session: 'id', mint: 'last_token', watch: 'session' }[table]!;
    const rows = file.prepare(`SELECT ${key} AS key FROM ${table} ORDER BY 1`).all() as { key: string | number }[];
    if (rows.length > 0) this.#delete(table, key, this.#random.pick(rows).key);
    file.exec('COMMIT');
  }

  #delete(table: string, column: string, value: string | number): void {
    const whose = { claim: 'id', session: 'session' }[table];
    if (whose) {
      const claims = file.prepare(`SELECT token FROM claim WHERE ${whose} = ?`).all(value) as { token: number }[];
      for (const { token } of claims) this.destroyed.add(BigInt(token));
    }
    file.prepare(`DELETE FROM ${table} WHERE ${column} = ?`).run(value);
  }
}

test('whatever rows go while others work: what was not destroyed is held alone and never lost, and every name comes back', async () => {
  const seed = Math.floor(Math.random() * 2 ** 32);
  const random = new Random(seed);
  const surgeon = new Surgeon(random.fork());
  const names = ['a', 'b', 'c'];
  const inside = new Map<string, Set<Lease>>(names.map((name) => [name, new Set()]));
  const wrong: string[] = [];
  let grants = 0;
  const isOurs = (lease: Lease): boolean => !surgeon.destroyed.has(lease.token / 1024n);
  const end = Date.now() + 5_000;

  const use = async (locks: Holdfast, luck: Random): Promise<void> => {
    const name = luck.pick(names);
    // 'c' has two permits, the others are exclusive.
    const lock = name === 'c' ? locks.semaphore(name, 2) : locks.mutex(name);
    const lease = await lock.acquire({ timeout: '20s' });
    grants += 1;
    const others = inside.get(name)!;
    others.add(lease);
    if ([...others].filter((each) => each.held && isOurs(each)).length > (name === 'c' ? 2 : 1))
      wrong.push(`two of ${name}`);
    await sleep(luck.between(0, 30));
    if (!lease.held && isOurs(lease)) wrong.push(`${name} was lost`);
    others.delete(lease);
    await lease.release();
  };

  const workers = Array.from({ length: 4 }, async () => {
    const locks = open('5s');
    const luck = random.fork();
    while (Date.now() < end)
      await use(locks, luck).catch((error: Error) => wrong.push(`${error.name}: ${error.message}`));
  });
  while (Date.now() < end) {
    surgeon.operate();
    await sleep(random.between(10, 60));
  }
  await Promise.all(workers);
  for (const name of names) {
    const lock = name === 'c' ? opened[1]!.semaphore(name, 2) : opened[1]!.mutex(name);
    // A ttl at most, of five seconds.
    await lock.acquire({ timeout: '20s' });
  }
  expect(wrong, `seed ${seed}`).toEqual([]);
  expect(surgeon.destroyed.size).toBeGreaterThan(10);
  expect(grants).toBeGreaterThan(20);
});
