// Fifty buyers, twenty items, no lock: whoever was overtaken between its read and its write reads again.
import { DatabaseSync } from '@photostructure/sqlite'; // with Node.js 22.13 or newer also from 'node:sqlite'
import { optimistic } from 'holdfast/optimistic';

const db = new DatabaseSync(':memory:');
db.exec('CREATE TABLE item (id INTEGER PRIMARY KEY, stock INTEGER NOT NULL, version INTEGER NOT NULL)');
db.exec('INSERT INTO item VALUES (7, 20, 0)');
const items = optimistic(db, { table: 'item' });

async function decide({ stock }) {
  await new Promise((resolve) => setImmediate(resolve)); // others come in between
  return stock > 0 ? { stock: stock - 1 } : undefined;
}

/** A ConflictError if it was overtaken each time. */
async function buy() {
  await items.update(7, decide, { retries: 1_000 });
}

await Promise.all(Array.from({ length: 50 }, buy));
const { stock, version } = db.prepare('SELECT stock, version FROM item').get();
console.log(`${version} sold, ${stock} left`);

// Output:
// 20 sold, 0 left
