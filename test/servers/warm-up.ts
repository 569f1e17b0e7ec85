/**
 * Every kind of server once, before the tests: what has to be unpacked, built or filled is there then. To download a JRE
 * may take longer than a test has time for, and all who need the same would wait for it.
 */
import { clockShim } from './clock-shim.js';
import { startEtcd } from './etcd.js';
import { startMariadb } from './mariadb.js';
import { startMemcached } from './memcached.js';
import { startPgBouncer } from './pgbouncer.js';
import { startPostgres } from './postgres.js';
import { startRedis } from './redis.js';
import { startZooKeeper } from './zookeeper.js';

// One after the other: the time is that of the disk and of the mirror.
for (const start of [startRedis, startMemcached, startMariadb, startEtcd, startZooKeeper]) {
  await using _ = await start();
}
await using postgres = await startPostgres();
await using _ = await startPgBouncer(postgres.port);
using _clock = await clockShim();
