/**
 * Pools that we make ourselves, of mysql2. A connection keeps no process alive: whoever waits for an answer has a timer
 * that does.
 */
import { loadPeer } from '../../kit/peer.js';
import { poolOf, type RawPool } from './client/database.js';
import type { MysqlUrl } from './url.js';

const CONNECT_MS = 3_000;
const KEEP_ALIVE_MS = 10_000;

export async function poolFromUrl(url: MysqlUrl, connectionLimit = 10): Promise<RawPool> {
  const { createPool } = await loadPeer('mysql2', () => import('mysql2'));
  const { host, port, user, password, database, tls } = url;
  const pool = createPool({
    host,
    port,
    database,
    ...(user !== undefined && { user }),
    ...(password !== undefined && { password }),
    ...(tls && { ssl: {} }),
    connectionLimit,
    connectTimeout: CONNECT_MS,
    enableKeepAlive: true,
    keepAliveInitialDelay: KEEP_ALIVE_MS,
  });
  pool.on('connection', (connection) => {
    (connection as unknown as { stream?: { unref?: () => void } }).stream?.unref?.();
  });
  return poolOf(pool);
}
