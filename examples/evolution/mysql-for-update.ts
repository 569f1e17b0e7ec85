import type { Connection, RowDataPacket } from 'mysql2/promise';
import { type Chapter, naiveCode } from './chapter.js';
import { connectionTo, holdfastOn } from './mysql.js';

// #region naive
const TABLE = 'CREATE TABLE resource_lock (id INT AUTO_INCREMENT PRIMARY KEY, resource VARCHAR(64) NOT NULL)';

async function lock(db: Connection, resource: string): Promise<void> {
  await db.beginTransaction();
  await db.query('SELECT id FROM resource_lock WHERE resource = ? FOR UPDATE', [resource]);
}
// #endregion

const ROWS = 100;
const LOCK_WAIT_TIMEOUT = 1205;

export const mysqlForUpdate: Chapter = {
  word: 'mysql-for-update',
  title: 'MySQL: SELECT … FOR UPDATE without an index',
  tries:
    'A transaction locks the row of its resource. A crash ends the connection, and with it the lock. The column has no index.',
  code: naiveCode(import.meta.url),

  async naive(scene, servers) {
    const server = await servers.get('mariadb');
    using adas = await connectionTo(server);
    using bens = await connectionTo(server);
    using looks = await connectionTo(server);
    const [ada, ben] = scene.actors('Ada', 'Ben');
    await looks.query('DROP TABLE IF EXISTS resource_lock');
    await looks.query(TABLE);
    const names = Array.from({ length: ROWS }, (_, at) => [`order:${at + 1}`]);
    await looks.query('INSERT INTO resource_lock (resource) VALUES ?', [names]);
    await lock(adas, 'order:1');
    ada!.enters('locks order:1');
    const [[locked]] = await looks.query<RowDataPacket[]>(
      'SELECT MAX(trx_rows_locked) AS records FROM information_schema.INNODB_TRX',
    );
    await bens.query('SET innodb_lock_wait_timeout = 1');
    ben!.waits('wants order:2');
    const error: unknown = await lock(bens, 'order:2').catch((reason: unknown) => reason);
    const { errno } = error as { errno?: number };
    ben!.does(`error ${errno}: lock wait timeout`);
    await adas.commit();
    ada!.leaves('COMMIT');
    scene.broken(
      `Ada wanted 1 row. InnoDB had to scan for it, and locked ${locked?.['records']} records.`,
      Number(locked?.['records']) >= ROWS,
    );
    scene.broken('Ben wanted another resource, and was kept out until his time was over.', errno, LOCK_WAIT_TIMEOUT);
  },

  async holdfast(scene, servers) {
    const server = await servers.get('mariadb');
    await using adas = holdfastOn(server, 'for-update', 'ada');
    await using bens = holdfastOn(server, 'for-update', 'ben');
    const [ada, ben] = scene.actors('Ada', 'Ben');
    await bens.mutex('another').run(() => {}); // the first use makes the tables
    const lease = await adas.mutex('order:1').acquire();
    ada!.enters('acquire order:1');
    const askedAt = performance.now();
    const other = await bens.mutex('order:2').acquire();
    const tookMs = Math.round(performance.now() - askedAt);
    ben!.does('acquire order:2 → a lease');
    const same = await bens.mutex('order:1').tryAcquire();
    ben!.waits('tryAcquire order:1 → undefined');
    scene.holds(
      `Rows are found by their primary key. Ben had order:2 after ${tookMs} ms, while Ada held order:1.`,
      [lease.held, other.held],
      [true, true],
    );
    scene.holds('Ben was refused order:1, and nothing else.', same === undefined);
    await Promise.all([lease.release(), other.release()]);
  },
};
