// A fence inside a transaction of Drizzle, here on PostgreSQL.
import { sql } from 'drizzle-orm';
import { drizzle } from 'drizzle-orm/node-postgres';
import { integer, pgTable } from 'drizzle-orm/pg-core';
import { Holdfast } from 'holdfast';
import { fence } from 'holdfast/fence';
import { Pool } from 'pg';

const pool = new Pool({ connectionString: process.env.POSTGRES_URL });
const db = drizzle(pool);
const account = pgTable('account_drizzle', { id: integer('id').primaryKey(), balance: integer('balance').notNull() });
const adapter = (tx) => ({
  dialect: 'postgres',
  query: async (_text, params, parts) => (await tx.execute(sql(parts, ...params))).rows,
});
await db.execute(sql`CREATE TABLE account_drizzle (id int PRIMARY KEY, balance int NOT NULL)`);
await db.insert(account).values({ id: 1, balance: 100 });

async function deposit(lease, amount) {
  await db.transaction(async (tx) => {
    await fence(adapter(tx)).open('account:1 of drizzle', lease); // before anything is read
    const [{ balance }] = await tx.select().from(account);
    await tx.update(account).set({ balance: balance + amount });
  });
}

// Ada stalls and loses the lock; Ben comes next. Then she wakes up, does not look at ada.held, and goes on.
const locks = new Holdfast('memory:');
const lock = locks.mutex('account:1');
const ada = await lock.acquire({ maxHold: '20ms' });
const ben = await lock.acquire();
await deposit(ben, 10);
await deposit(ada, 5).catch((error) => console.log(`Ada is refused: ${error.code}`));

const [{ balance }] = await db.select().from(account);
console.log(`balance: ${balance}`);
await locks.close();
await pool.end();

// Output:
// Ada is refused: HOLDFAST_STALE_TOKEN
// balance: 110
