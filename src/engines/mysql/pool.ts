/**
 * Pools that we make ourselves, of mysql2. A connection keeps no process alive: whoever waits for an answer has a timer
 * that does.
 */
import { connect, isIP, type Socket } from 'node:net';
import type { SslOptions } from 'mysql2';
import { readCertificates } from '../../kit/certificates.js';
import { exportsOf, notLoaded } from '../../kit/peer.js';
import { poolOf, type RawPool } from './client/port.js';
import type { MysqlUrl } from './url.js';

const CONNECT_MS = 3_000;
const KEEP_ALIVE_MS = 10_000;

export async function poolFromUrl(url: MysqlUrl, connectionLimit = 10): Promise<RawPool> {
  const { createPool } = await loadMysql2();
  const { host, port, user, password, database, tls, files } = url;
  const pool = createPool({
    host,
    port,
    database,
    ...(user !== undefined && { user }),
    ...(password !== undefined && { password }),
    ...(tls && { ssl: { ...((await readCertificates('mysql', files)) as SslOptions), verifyIdentity: true } }),
    ...(tls && isIP(host) !== 0 && { stream: () => socketTo(host, port) }),
    connectionLimit,
    connectTimeout: CONNECT_MS,
    enableKeepAlive: true,
    keepAliveInitialDelay: KEEP_ALIVE_MS,
  });
  // What we have set on a connection stays, whatever mysql2 thinks best. As an option, some versions would complain about it.
  (pool as unknown as { config: { resetOnRelease?: boolean } }).config.resetOnRelease = false;
  pool.on('connection', (connection) => {
    (connection as unknown as { stream?: { unref?: () => void } }).stream?.unref?.();
  });
  return poolOf(pool);
}

/**
 * By itself mysql2 names an address to nobody, and Node.js takes a server without a name for `localhost`: a certificate of that
 * name would do for every address. This is the name that Node.js compares the certificate with.
 */
function socketTo(host: string, port: number): Socket {
  const socket = connect({ host, port, noDelay: true, keepAlive: true, keepAliveInitialDelay: KEEP_ALIVE_MS });
  return Object.assign(socket, { _host: host });
}

async function loadMysql2(): Promise<typeof import('mysql2')> {
  try {
    return exportsOf('mysql2', 'createPool', await import('mysql2'));
  } catch (error) {
    throw notLoaded('mysql2', error);
  }
}
