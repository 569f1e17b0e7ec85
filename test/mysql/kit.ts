/** What the tests on a real MariaDB (or MySQL: npm run test:matrix -- mysql-9) have in common. */
import { createPool, type Pool } from 'mysql2';
import { Holdfast, type HoldfastOptions } from '../../src/index.js';
import { mysql, type MysqlOptions } from '../../src/engines/mysql/index.js';
import type { MysqlStrategy } from '../../src/engines/mysql/traits.js';

/** The long form of a test, and every strategy in every test, is for the matrix: CI has two minutes for all of this. */
export const LONG = process.env['HOLDFAST_MATRIX'] !== undefined;

/** One of each family: lines, rows, connections. Conformance runs on all of them always. */
export const STRATEGIES: readonly MysqlStrategy[] = LONG
  ? ['queue', 'row', 'version', 'for-update', 'get-lock']
  : ['queue', 'row', 'get-lock'];

/** Everything that a test opens, closed at its end whatever happens. */
export class Stage implements AsyncDisposable {
  readonly #port: () => number;
  readonly #holdfasts: Holdfast[] = [];
  readonly #pools: Pool[] = [];

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
  byUrl(query: string, settings: HoldfastOptions = {}, port = this.#port()): Holdfast {
    const locks = new Holdfast(`mysql://root@127.0.0.1:${port}/test?${query}`, settings);
    this.#holdfasts.push(locks);
    return locks;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await Promise.all(this.#holdfasts.map((locks) => locks.close()));
    await Promise.all(this.#pools.map((pool) => pool.promise().end()));
  }
}
