/** What others do on PostgreSQL: the bare cycle of a lock table, and advisory locks by hand. */
import { randomUUID } from 'node:crypto';
import { setTimeout } from 'node:timers/promises';
import type { Pool, PoolClient } from 'pg';

const POLL_MS = 10;

/** One upsert and one delete: no order, no sessions, no renewal, no tokens. Who finds it taken polls. */
export class BareLocks {
  readonly #pool: Pool;

  constructor(pool: Pool) {
    this.#pool = pool;
  }

  static async open(pool: Pool): Promise<BareLocks> {
    await pool.query('SELECT pg_advisory_lock(1)');
    await pool.query('CREATE TABLE IF NOT EXISTS bare (name text PRIMARY KEY, holder text, until timestamptz)');
    await pool.query('SELECT pg_advisory_unlock_all()');
    return new BareLocks(pool);
  }

  async use(name: string): Promise<void> {
    const id = randomUUID();
    while (!(await this.#take(name, id))) await setTimeout(POLL_MS);
    await this.#pool.query({
      name: 'bare-drop',
      text: 'DELETE FROM bare WHERE name = $1 AND holder = $2',
      values: [name, id],
    });
  }

  async #take(name: string, id: string): Promise<boolean> {
    const { rowCount } = await this.#pool.query({
      name: 'bare-take',
      text: `INSERT INTO bare VALUES ($1, $2, clock_timestamp() + interval '10 s') ON CONFLICT (name) DO UPDATE
        SET holder = excluded.holder, until = excluded.until WHERE bare.until <= clock_timestamp()`,
      values: [name, id],
    });
    return rowCount === 1;
  }
}

/** On one connection; the server queues. */
export async function useAdvisory(client: PoolClient, name: string): Promise<void> {
  await client.query({ name: 'hand-lock', text: 'SELECT pg_advisory_lock(hashtextextended($1, 0))', values: [name] });
  await client.query({
    name: 'hand-unlock',
    text: 'SELECT pg_advisory_unlock(hashtextextended($1, 0))',
    values: [name],
  });
}
