/**
 * Clients that we make ourselves, of ioredis. What its defaults do to locks (measured): a command whose reply is lost is
 * sent again without a word, a hung server is waited for without end, and one behind Sentinel is never left.
 */
import { exportsOf, notLoaded } from '../../kit/peer.js';
import type { IoredisClient } from './client/ioredis.js';
import type { RedisUrl } from './url.js';

/** The core has its own deadline on every call. These break the connection, so that the next call gets a new one. */
const COMMAND_MS = 3_000;
const SILENCE_MS = 3_000;
const CONNECT_MS = 3_000;

export async function clientFromUrl(url: RedisUrl): Promise<IoredisClient> {
  const { Redis, Cluster } = await loadIoredis();
  const { kind, hosts, user, password, db, master, sentinelPassword, tls } = url;
  const connection = {
    ...(user !== undefined && { username: user }),
    ...(password !== undefined && { password }),
    ...(tls && { tls: {} }),
    connectTimeout: CONNECT_MS,
    commandTimeout: COMMAND_MS,
    socketTimeout: SILENCE_MS,
    // An outcome that is unknown is for the core to find out: it asks again with the same claim.
    autoResendUnfulfilledCommands: false,
    maxRetriesPerRequest: 0,
    enableOfflineQueue: true,
    retryStrategy: (attempt: number) => Math.min(attempt * 50, 1_000),
  };
  return make() as unknown as IoredisClient;

  function make(): InstanceType<typeof Redis> | InstanceType<typeof Cluster> {
    if (kind === 'single') return new Redis({ ...connection, ...hosts[0]!, db });
    if (kind === 'sentinel')
      return new Redis({
        ...connection,
        sentinels: [...hosts],
        name: master,
        db,
        ...(sentinelPassword !== undefined && { sentinelPassword }),
        ...(tls && { sentinelTLS: {}, enableTLSForSentinelMode: true }),
        failoverDetector: true,
        sentinelRetryStrategy: (attempt: number) => Math.min(attempt * 50, 1_000),
      });
    return new Cluster([...hosts], {
      redisOptions: connection,
      // A node that is gone is asked about for as long as a failover takes; the core's deadline is shorter.
      retryDelayOnFailover: 100,
      retryDelayOnClusterDown: 100,
      clusterRetryStrategy: (attempt: number) => Math.min(attempt * 50, 1_000),
    });
  }
}

async function loadIoredis(): Promise<Pick<typeof import('ioredis'), 'Redis' | 'Cluster'>> {
  try {
    return exportsOf('ioredis', 'Redis', await import('ioredis'));
  } catch (error) {
    throw notLoaded('ioredis', error);
  }
}
