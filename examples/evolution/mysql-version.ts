import type { Connection, ResultSetHeader, RowDataPacket } from 'mysql2/promise';
import { until } from '../../test/servers/lines.js';
import { type Chapter, naiveCode } from './chapter.js';
import { connectionTo, holdfastOn } from './mysql.js';

// #region naive
async function buy(db: Pick<Connection, 'query'>): Promise<boolean> {
  const [[item]] = await db.query<RowDataPacket[]>('SELECT stock, version FROM item WHERE id = 7');
  const [{ affectedRows }] = await db.query<ResultSetHeader>(
    'UPDATE item SET stock = stock - 1, version = version + 1 WHERE id = 7 AND version = ?',
    [item?.['version']],
  );
  return affectedRows === 1; // false: somebody was quicker, so try again
}
// #endregion

const BUYERS = 20;

export const mysqlVersion: Chapter = {
  word: 'mysql-version',
  title: 'MySQL: a version column under contention',
  tries:
    'No lock at all: read the row with its version, and write only if the version is still the same. Else try again.',
  code: naiveCode(import.meta.url),

  async naive(scene, servers) {
    const server = await servers.get('mariadb');
    using db = await connectionTo(server);
    const [buyers] = scene.actors(`${BUYERS} buyers, ${BUYERS} items`);
    await stock(db);
    let updates = 0;
    let rounds = 0;
    for (let left = BUYERS; left > 0; rounds += 1) {
      let reading = left;
      // Nobody writes before everybody has read.
      const query = async (text: string, values?: unknown[]): Promise<unknown> => {
        if (text.startsWith('UPDATE')) {
          updates += 1;
          reading -= 1;
          await until('all have read', () => reading === 0);
        }
        return db.query(text, values);
      };
      const bought = await Promise.all(Array.from({ length: left }, () => buy({ query } as Pick<Connection, 'query'>)));
      const sold = bought.filter(Boolean).length;
      if (rounds < 3) buyers!.does(`all read, ${left} UPDATEs → ${sold} sold, ${left - sold} try again`);
      left -= sold;
    }
    buyers!.does(`… after ${rounds} rounds: all sold`);
    const [[item]] = await db.query<RowDataPacket[]>('SELECT stock, version FROM item WHERE id = 7');
    scene.holds(
      `Nothing was sold twice: ${item?.['version']} sold, ${item?.['stock']} left.`,
      [item?.['version'], item?.['stock']],
      [BUYERS, 0],
    );
    scene.broken(
      `It took ${updates} UPDATEs to sell ${BUYERS}. The last buyer was refused ${rounds - 1} times.`,
      [updates, rounds],
      [(BUYERS * (BUYERS + 1)) / 2, BUYERS],
    );
  },

  async holdfast(scene, servers) {
    const server = await servers.get('mariadb');
    using db = await connectionTo(server);
    const fleet = Array.from({ length: 4 }, (_, at) => holdfastOn(server, 'queue', `shop-${at}`));
    const [buyers] = scene.actors(`${BUYERS} buyers, ${BUYERS} items`);
    await stock(db);
    let updates = 0;
    let sold = 0;
    const purchases = Array.from({ length: BUYERS }, (_, at) =>
      fleet[at % fleet.length]!.mutex('item:7').run({ timeout: '30s' }, async () => {
        updates += 1;
        if (await buy(db)) sold += 1;
      }),
    );
    buyers!.waits('all come at once, over 4 instances');
    await Promise.all(purchases);
    buyers!.does(`${updates} UPDATEs → ${sold} sold`);
    await Promise.all(fleet.map((locks) => locks.close()));
    scene.holds(
      `In line, each buyer needed 1 UPDATE: ${updates} in all, and nobody was refused.`,
      [updates, sold],
      [BUYERS, BUYERS],
    );
  },
};

async function stock(db: Connection): Promise<void> {
  await db.query('DROP TABLE IF EXISTS item');
  await db.query('CREATE TABLE item (id INT PRIMARY KEY, stock INT NOT NULL, version INT NOT NULL)');
  await db.query('INSERT INTO item VALUES (7, ?, 0)', [BUYERS]);
}
