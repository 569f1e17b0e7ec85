// A fence inside a transaction of mysql2, on MySQL or MariaDB.
import { Holdfast } from 'holdfast';
import { fence, migrate } from 'holdfast/fence';
import { createPool } from 'mysql2/promise';

const pool = createPool(process.env.MYSQL_URL);
await migrate(pool); // once, with a deployment: DDL would commit the transaction, so it is not made on the way
await pool.query('CREATE TABLE account (id int PRIMARY KEY, balance int NOT NULL)');
await pool.query('INSERT INTO account VALUES (1, 100)');

async function deposit(lease, amount) {
  const connection = await pool.getConnection(); // not the pool: the fence must be in the transaction
  try {
    await connection.beginTransaction();
    await fence(connection).open('account:1', lease); // before anything is read: the snapshot begins with the first read
    const [[account]] = await connection.query('SELECT balance FROM account WHERE id = 1');
    await connection.query('UPDATE account SET balance = ? WHERE id = 1', [account.balance + amount]);
    await connection.commit();
  } catch (error) {
    await connection.rollback();
    throw error;
  } finally {
    connection.release();
  }
}

// Ada stalls and loses the lock; Ben comes next. Then she wakes up, does not look at ada.held, and goes on.
const locks = new Holdfast('memory:');
const lock = locks.mutex('account:1');
const ada = await lock.acquire({ maxHold: '20ms' });
const ben = await lock.acquire();
await deposit(ben, 10);
await deposit(ada, 5).catch((error) => console.log(`Ada is refused: ${error.code}`));

const [[account]] = await pool.query('SELECT balance FROM account');
console.log(`balance: ${account.balance}`);
await locks.close();
await pool.end();

// Output:
// Ada is refused: HOLDFAST_STALE_TOKEN
// balance: 110
