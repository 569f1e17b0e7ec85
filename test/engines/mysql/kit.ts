/** What the tests on a real MariaDB (or MySQL: npm run test:matrix -- mysql-9) have in common. */
import { createPool, type Pool, type RowDataPacket } from 'mysql2';
import { systemClock } from '../../../src/core/clock.js';
import { type Engine, Holdfast, type HoldfastOptions } from '../../../src/index.js';
import { mysql, type MysqlOptions } from '../../../src/engines/mysql/index.js';
import type { MysqlStrategy } from '../../../src/engines/mysql/traits.js';
import { Actor } from '../../../src/conformance/protocol.js';

/** The long form of a test, and every strategy in every test, is for the matrix: CI has two minutes for all of this. */
export const LONG = process.env['HOLDFAST_MATRIX'] !== undefined;

/** Else it is MySQL, in the matrix. */
export const MARIADB = process.env['HOLDFAST_MYSQL'] === undefined;

/** For tests that have a long form. */
export const LIMIT_MS = LONG ? 900_000 : 180_000;

/** One of each family: lines, rows, connections. Conformance runs on all of them always. */
export const STRATEGIES: readonly MysqlStrategy[] = LONG
  ? ['queue', 'row', 'version', 'for-update', 'get-lock']
  : ['queue', 'row', 'get-lock'];

const SETTINGS = ['autocommit', 'wait_timeout', 'innodb_lock_wait_timeout', 'tx_isolation', 'transaction_isolation'];

/** What of the settings of a pool's connections is not as the server has it, for each of them. */
export async function changedSettings(pool: Pool, many: number): Promise<readonly string[]> {
  const names = SETTINGS.map((name) => `'${name}'`).join(', ');
  const connections = await Promise.all(Array.from({ length: many }, () => pool.promise().getConnection()));
  const changed: string[] = [];
  for (const connection of connections) {
    const show = async (scope: string): Promise<RowDataPacket[]> => {
      const sql = `SHOW ${scope} VARIABLES WHERE Variable_name IN (${names})`;
      return (await connection.query<RowDataPacket[]>(sql))[0];
    };
    const [here, usual] = [await show('SESSION'), await show('GLOBAL')];
    for (const [at, row] of here.entries())
      if (row['Value'] !== usual[at]!['Value']) changed.push(`${row['Variable_name']} = ${row['Value']}`);
    connection.release();
  }
  return changed;
}

/** Everything that a test opens, closed at its end whatever happens. */
export class Stage implements AsyncDisposable {
  readonly #port: () => number;
  readonly #holdfasts: Holdfast[] = [];
  readonly #pools: Pool[] = [];
  readonly #actors: Actor[] = [];
  readonly #engines: Engine[] = [];

  constructor(port: () => number) {
    this.#port = port;
  }

  pool(options: object = {}): Pool {
    const pool = createPool({ host: '127.0.0.1', port: this.#port(), user: 'root', database: 'test', ...options });
    // Connections that break while nobody uses them.
    this.#pools.push(pool);
    return pool;
  }

  locks(options: MysqlOptions, settings: HoldfastOptions = {}, pool = this.pool()): Holdfast {
    const locks = new Holdfast(mysql(pool, options), settings);
    this.#holdfasts.push(locks);
    return locks;
  }

  /** On connections of its own. */
  byUrl(query: string, settings: HoldfastOptions = {}, port = this.#port(), user = 'root'): Holdfast {
    const locks = new Holdfast(`mysql://${user}@127.0.0.1:${port}/test?${query}`, settings);
    this.#holdfasts.push(locks);
    return locks;
  }

  /** A session spoken to directly. It never beats by itself. */
  async actor(options: MysqlOptions, namespace: string, pool: object | string = this.pool()): Promise<Actor> {
    const engine = await mysql(pool, options).connect({ namespace, clock: systemClock });
    this.#engines.push(engine);
    const session = { id: systemClock.id(), realm: '', ttlMs: 600_000, label: 'actor' };
    const actor = await Actor.open(engine, session, systemClock.id());
    this.#actors.push(actor);
    return actor;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await Promise.all(this.#actors.map(({ session }) => session.close()));
    await Promise.all(this.#engines.map((engine) => engine[Symbol.asyncDispose]()));
    await Promise.all(this.#holdfasts.map((locks) => locks.close()));
    await Promise.all(this.#pools.map((pool) => pool.promise().end()));
  }
}
