import { setTimeout as sleep } from 'node:timers/promises';
import { sql } from '../../servers/mariadb.js';
import type { Server } from '../../servers/server.js';

/** How many statements that begin so wait for a row inside the server. */
export async function waitingInServer({ port }: Server, statement = ''): Promise<number> {
  // Who asks more than ten times a second gets the last answer again.
  await sleep(150);
  const [row] = await sql(
    port,
    `SELECT COUNT(*) AS many FROM information_schema.innodb_trx
      WHERE trx_state = 'LOCK WAIT' AND COALESCE(trx_query, '') LIKE '${statement.replaceAll('_', '\\_')}%'`,
  );
  return Number(row!['many']);
}
