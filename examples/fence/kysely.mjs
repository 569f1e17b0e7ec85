// A fence inside a transaction of Kysely, here on PostgreSQL.
import { Holdfast } from 'holdfast';
import { fence } from 'holdfast/fence';
import { CompiledQuery, Kysely, PostgresDialect } from 'kysely';
import { Pool } from 'pg';

const db = new Kysely({
  dialect: new PostgresDialect({ pool: new Pool({ connectionString: process.env.POSTGRES_URL }) }),
});
const adapter = (trx) => ({
  dialect: 'postgres',
  query: async (text, params) => (await trx.executeQuery(CompiledQuery.raw(text, [...params]))).rows,
});
await db.schema.createTable('account_kysely').addColumn('id', 'integer').addColumn('balance', 'integer').execute();
await db.insertInto('account_kysely').values({ id: 1, balance: 100 }).execute();

async function deposit(lease, amount) {
  await db.transaction().execute(async (trx) => {
    await fence(adapter(trx)).open('account:1 of kysely', lease); // before anything is read
    const { balance } = await trx.selectFrom('account_kysely').select('balance').executeTakeFirstOrThrow();
    await trx
      .updateTable('account_kysely')
      .set({ balance: balance + amount })
      .execute();
  });
}

// Ada stalls and loses the lock; Ben comes next. Then she wakes up, does not look at ada.held, and goes on.
const locks = new Holdfast('memory:');
const lock = locks.mutex('account:1');
const ada = await lock.acquire({ maxHold: '20ms' });
const ben = await lock.acquire();
await deposit(ben, 10);
await deposit(ada, 5).catch((error) => console.log(`Ada is refused: ${error.code}`));

const { balance } = await db.selectFrom('account_kysely').select('balance').executeTakeFirstOrThrow();
console.log(`balance: ${balance}`);
await locks.close();
await db.destroy();

// Output:
// Ada is refused: HOLDFAST_STALE_TOKEN
// balance: 110
