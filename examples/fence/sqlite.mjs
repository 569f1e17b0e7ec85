// A fence inside a transaction of SQLite. With Node.js 22.13 or newer, DatabaseSync is also in 'node:sqlite'.
import { DatabaseSync } from '@photostructure/sqlite';
import { Holdfast } from 'holdfast';
import { fence } from 'holdfast/fence';

const db = new DatabaseSync(':memory:');
db.exec('CREATE TABLE account (id INTEGER PRIMARY KEY, balance INTEGER NOT NULL); INSERT INTO account VALUES (1, 100)');

async function deposit(lease, amount) {
  db.exec('BEGIN IMMEDIATE');
  try {
    fence(db).openSync('account:1', lease); // before anything is read; there is also an open() to await
    const { balance } = db.prepare('SELECT balance FROM account WHERE id = 1').get();
    db.prepare('UPDATE account SET balance = ? WHERE id = 1').run(balance + amount);
    db.exec('COMMIT');
  } catch (error) {
    db.exec('ROLLBACK');
    throw error;
  }
}

// Ada stalls and loses the lock; Ben comes next. Then she wakes up, does not look at ada.held, and goes on.
const locks = new Holdfast('memory:');
const lock = locks.mutex('account:1');
const ada = await lock.acquire({ maxHold: '20ms' });
const ben = await lock.acquire();
await deposit(ben, 10);
await deposit(ada, 5).catch((error) => console.log(`Ada is refused: ${error.code}`));

console.log(`balance: ${db.prepare('SELECT balance FROM account').get().balance}`);
await locks.close();

// Output:
// Ada is refused: HOLDFAST_STALE_TOKEN
// balance: 110
