// A fence inside a transaction of pg.
import { Holdfast } from 'holdfast';
import { fence } from 'holdfast/fence';
import { Pool } from 'pg';

const pool = new Pool({ connectionString: process.env.POSTGRES_URL });
await pool.query('CREATE TABLE account (id int PRIMARY KEY, balance int NOT NULL)');
await pool.query('INSERT INTO account VALUES (1, 100)');

async function deposit(lease, amount) {
  const client = await pool.connect(); // not the pool: the fence must be in the transaction
  try {
    await client.query('BEGIN');
    await fence(client).open('account:1', lease); // before anything is read
    const { rows } = await client.query('SELECT balance FROM account WHERE id = 1');
    await client.query('UPDATE account SET balance = $1 WHERE id = 1', [rows[0].balance + amount]);
    await client.query('COMMIT');
  } catch (error) {
    await client.query('ROLLBACK');
    throw error;
  } finally {
    client.release();
  }
}

// Ada stalls and loses the lock; Ben comes next. Then she wakes up, does not look at ada.held, and goes on.
const locks = new Holdfast('memory:');
const lock = locks.mutex('account:1');
const ada = await lock.acquire({ maxHold: '20ms' });
const ben = await lock.acquire();
await deposit(ben, 10);
await deposit(ada, 5).catch((error) => console.log(`Ada is refused: ${error.code}`));

const { rows } = await pool.query('SELECT balance FROM account');
console.log(`balance: ${rows[0].balance}`);
await locks.close();
await pool.end();

// Output:
// Ada is refused: HOLDFAST_STALE_TOKEN
// balance: 110
