/** Behind a pooler that shares connections between transactions. */
import { Pool, type PoolClient } from 'pg';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { fence } from '../../../src/fence/index.js';
import { StaleTokenError } from '../../../src/index.js';
import { optimistic } from '../../../src/optimistic/index.js';
import { startPgBouncer } from '../../servers/pgbouncer.js';
import type { Server } from '../../servers/server.js';
import { Kit } from './kit.js';

const kit = new Kit();
let bouncer: Server;

beforeAll(async () => {
  bouncer = await startPgBouncer(kit.server.port);
});

afterAll(() => bouncer.stop());

const url = (): string => kit.url.replace(`:${kit.server.port}/`, `:${bouncer.port}/`);

test('queue: waiters are served though messages do not come through, and a warning says why it takes longer', async () => {
  // Node and the client may have something to say as well.
  const warned = new Promise<Error>((resolve) => {
    process.on('warning', function hear(warning) {
      if (warning.name !== 'HoldfastWarning') return;
      process.off('warning', hear);
      resolve(warning);
    });
  });
  const [a, b] = [kit.locks(url()), kit.locks(url())];
  for (let round = 0; round < 5; round += 1) {
    const lease = await a.mutex('x').acquire();
    const waiting = b.mutex('x').acquire();
    await lease.release();
    expect((await waiting).token).toBeGreaterThan(lease.token);
    await (await waiting).release();
  }
  expect((await warned).message).toContain('LISTEN');
});

test('advisory: is refused', async () => {
  const locks = kit.locks(url(), { strategy: 'advisory' });
  await expect(locks.mutex('x').acquire()).rejects.toMatchObject({ code: 'HOLDFAST_CONFIG' });
});

async function buy(tx: PoolClient): Promise<void> {
  const { rows } = await tx.query<{ stock: number }>('SELECT stock FROM pooled_item');
  await tx.query('UPDATE pooled_item SET stock = $1, version = version + 1', [rows[0]!.stock + 1]);
}

test('a fence and optimistic rows lose no update, and who was overtaken is refused', async () => {
  const pool = new Pool({ connectionString: url(), max: 8 });
  await pool.query('CREATE TABLE pooled_item (id INTEGER PRIMARY KEY, stock INTEGER, version INTEGER)');
  await pool.query('INSERT INTO pooled_item VALUES (1, 0, 1)');
  const items = optimistic<{ stock: number }>(pool, { table: 'pooled_item' });
  await Promise.all(Array.from({ length: 20 }, () => fence(pool).transaction('pooled', 5n, buy)));
  await Promise.all(
    Array.from({ length: 20 }, () => items.update(1, ({ stock }) => ({ stock: stock + 1 }), { retries: 500 })),
  );
  expect((await pool.query<{ stock: number }>('SELECT stock FROM pooled_item')).rows).toEqual([{ stock: 40 }]);
  await expect(fence(pool).transaction('pooled', 4n, buy)).rejects.toThrow(StaleTokenError);
  await pool.end();
});
