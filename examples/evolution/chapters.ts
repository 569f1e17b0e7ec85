/** All chapters, in the order in which people come upon them. */
import type { Chapter } from './chapter.js';
import { checkThenDel } from './check-then-del.js';
import { failover } from './failover.js';
import { fencing } from './fencing.js';
import { foreignDel } from './foreign-del.js';
import { lua } from './lua.js';
import { memcachedEviction } from './memcached-eviction.js';
import { mysqlForUpdate } from './mysql-for-update.js';
import { mysqlRow } from './mysql-row.js';
import { mysqlVersion } from './mysql-version.js';
import { recursion } from './recursion.js';
import { redlock } from './redlock.js';
import { reentrant } from './reentrant.js';
import { spin } from './spin.js';
import { twoCommands } from './two-commands.js';
import { watchdogChapter } from './watchdog.js';
import { zookeeperHerd } from './zookeeper-herd.js';

export const CHAPTERS: readonly Chapter[] = [
  recursion,
  spin,
  twoCommands,
  foreignDel,
  checkThenDel,
  lua,
  reentrant,
  watchdogChapter,
  failover,
  redlock,
  fencing,
  mysqlRow,
  mysqlForUpdate,
  mysqlVersion,
  zookeeperHerd,
  memcachedEviction,
];
