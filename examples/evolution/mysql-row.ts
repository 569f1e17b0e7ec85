import type { Connection } from 'mysql2/promise';
import { type Chapter, naiveCode } from './chapter.js';
import { Holder } from './holder.js';
import { connectionTo, holdfastOn, urlOf } from './mysql.js';

// #region naive
const TABLE = 'CREATE TABLE method_lock (id INT AUTO_INCREMENT PRIMARY KEY, method_name VARCHAR(64) NOT NULL UNIQUE)';

async function lock(db: Connection, name: string): Promise<boolean> {
  try {
    await db.query('INSERT INTO method_lock (method_name) VALUES (?)', [name]);
    return true;
  } catch (error) {
    if ((error as { code?: string }).code === 'ER_DUP_ENTRY') return false; // somebody has it
    throw error;
  }
}

async function unlock(db: Connection, name: string): Promise<void> {
  await db.query('DELETE FROM method_lock WHERE method_name = ?', [name]);
}
// #endregion

export const mysqlRow: Chapter = {
  word: 'mysql-row',
  title: 'MySQL: a row with a unique key',
  tries:
    'The database refuses a second row of the same name, so whoever inserts it has the lock, and deletes it in the end.',
  code: naiveCode(import.meta.url),

  async naive(scene, servers) {
    const server = await servers.get('mariadb');
    using adas = await connectionTo(server);
    using bens = await connectionTo(server);
    const [ada, ben] = scene.actors('Ada', 'Ben');
    await bens.query('DROP TABLE IF EXISTS method_lock');
    await bens.query(TABLE);
    await lock(adas, 'order:42');
    ada!.enters('INSERT → 1 row');
    adas.destroy();
    ada!.leaves('crashes before DELETE');
    const first = await lock(bens, 'order:42');
    ben!.waits('INSERT → ER_DUP_ENTRY');
    await bens.query('DO SLEEP(0.5)');
    const second = await lock(bens, 'order:42');
    ben!.does('later: INSERT → ER_DUP_ENTRY');
    await unlock(bens, 'order:42');
    ben!.does('somebody DELETEs it by hand');
    const third = await lock(bens, 'order:42');
    ben!.enters('INSERT → 1 row');
    scene.broken(
      'The row knows neither its owner nor an end. It outlived Ada, and kept Ben out until somebody deleted it.',
      [first, second, third],
      [false, false, true],
    );
  },

  async holdfast(scene, servers) {
    const server = await servers.get('mariadb');
    await using bens = holdfastOn(server, 'row', 'ben');
    await bens.mutex('another').run(() => {}); // the first use makes the tables
    await using adas = new Holder(urlOf(server, 'row'), 'order:42');
    const [ada, ben] = scene.actors('Ada', 'Ben');
    const token = await adas.acquire();
    ada!.enters('acquire → a lease');
    await adas.kill();
    const killedAt = performance.now();
    ada!.leaves('her process is killed');
    ben!.waits('acquire → waits');
    const lease = await bens.mutex('order:42').acquire();
    const waitedMs = Math.round(performance.now() - killedAt);
    ben!.enters('takes the row over');
    await lease.release();
    scene.holds(
      `The row has an end, by the server’s clock. Ben took it over ${waitedMs} ms after the crash.`,
      waitedMs < 20_000,
    );
    scene.holds('His token is larger than Ada’s, and it is committed.', lease.token > token);
  },
};
