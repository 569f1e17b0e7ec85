/** Bugs by engine and strategy, and of what stands beside the locks: at least four of each. */
import type { TestedBug } from '../test-run.js';
import { commandLine } from './cli.js';
import { etcd } from './etcd.js';
import { fence } from './fence.js';
import { memcached } from './memcached.js';
import { memory } from './memory.js';
import { mysqlForUpdate } from './mysql-for-update.js';
import { mysqlGetLock } from './mysql-get-lock.js';
import { mysqlQueue } from './mysql-queue.js';
import { mysqlRow } from './mysql-row.js';
import { mysqlVersion } from './mysql-version.js';
import { optimistic } from './optimistic.js';
import { postgresAdvisory } from './postgres-advisory.js';
import { postgresQueue } from './postgres-queue.js';
import { redisHash } from './redis-hash.js';
import { redisPlain } from './redis-plain.js';
import { redisQueue } from './redis-queue.js';
import { redlock } from './redlock.js';
import { sqlite } from './sqlite.js';
import { zookeeper } from './zookeeper.js';

export const ENGINE_BUGS: Readonly<Record<string, readonly TestedBug[]>> = {
  memory,
  sqlite,
  'redis queue': redisQueue,
  'redis plain': redisPlain,
  'redis hash': redisHash,
  redlock,
  'mysql queue': mysqlQueue,
  'mysql row': mysqlRow,
  'mysql version': mysqlVersion,
  'mysql for-update': mysqlForUpdate,
  'mysql get-lock': mysqlGetLock,
  'postgres queue': postgresQueue,
  'postgres advisory': postgresAdvisory,
  zookeeper,
  etcd,
  memcached,
  fence,
  optimistic,
  cli: commandLine,
};
