// A fence inside a transaction of knex, here on MySQL or MariaDB.
import { Holdfast } from 'holdfast';
import { fence, migrate } from 'holdfast/fence';
import knex from 'knex';

const db = knex({ client: 'mysql2', connection: process.env.MYSQL_URL });
// With PostgreSQL: dialect 'postgres', query: async (_text, params, parts) => (await on.raw(parts.join('?'), params)).rows
const adapter = (on) => ({ dialect: 'mysql', query: async (text, params) => (await on.raw(text, params))[0] });
await migrate(adapter(db)); // once, with a deployment
await db.schema.createTable('account_knex', (table) => table.integer('id').primary() && table.integer('balance'));
await db('account_knex').insert({ id: 1, balance: 100 });

async function deposit(lease, amount) {
  await db.transaction(async (trx) => {
    await fence(adapter(trx)).open('account:1 of knex', lease); // before anything is read
    const { balance } = await trx('account_knex').where({ id: 1 }).first();
    await trx('account_knex')
      .where({ id: 1 })
      .update({ balance: balance + amount });
  });
}

// Ada stalls and loses the lock; Ben comes next. Then she wakes up, does not look at ada.held, and goes on.
const locks = new Holdfast('memory:');
const lock = locks.mutex('account:1');
const ada = await lock.acquire({ maxHold: '20ms' });
const ben = await lock.acquire();
await deposit(ben, 10);
await deposit(ada, 5).catch((error) => console.log(`Ada is refused: ${error.code}`));

const { balance } = await db('account_knex').first();
console.log(`balance: ${balance}`);
await locks.close();
await db.destroy();

// Output:
// Ada is refused: HOLDFAST_STALE_TOKEN
// balance: 110
