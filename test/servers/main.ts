/**
 * `npm run servers`, before the tests: finds every kind of server or unpacks it from Debian packages, and starts it once, so
 * that what has to be built or filled is there. Nothing is downloaded later: a test must not wait for a mirror.
 *
 * A server that can't be had is written down with its reason, and the tests that need it are not run (not-run.ts).
 * `npm run servers -- --all` fails then; CI insists on that.
 */
import { mkdir, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { clockShim } from './clock-shim.js';
import { unpackDebian } from './debian.js';
import { startEtcd } from './etcd.js';
import { galeraLibrary } from './galera.js';
import { startMariadb } from './mariadb.js';
import { startMemcached } from './memcached.js';
import { MISSING_FILE } from './not-run.js';
import { startPgBouncer } from './pgbouncer.js';
import { startPostgres } from './postgres.js';
import { NotProvided, provide } from './provide.js';
import { startRedis } from './redis.js';
import { startZooKeeper } from './zookeeper.js';

/** Each under the name of its module, which is how a test is known to need it. */
const SERVERS: Readonly<Record<string, () => Promise<unknown>>> = {
  redis: () => once(startRedis),
  memcached: () => once(startMemcached),
  mariadb: () => once(startMariadb),
  postgres: () => once(startPostgres),
  pgbouncer: async () => {
    await using postgres = await startPostgres();
    await once(() => startPgBouncer(postgres.port));
  },
  etcd: () => once(startEtcd),
  zookeeper: () => once(startZooKeeper),
  network: async () => provide('ip', ['iproute2']),
  // Only the matrix needs it, and asks for it: `npm run servers -- galera`.
  ...(process.argv.includes('galera') && { galera: async () => galeraLibrary() }),
};

async function once(start: () => Promise<AsyncDisposable>): Promise<void> {
  await using _ = await start();
}

/** Why it can't be had; undefined: it can. */
async function obtain(attempt: () => Promise<unknown>): Promise<string | undefined> {
  const unpacked = new Set<string>();
  for (;;) {
    try {
      await attempt();
      return undefined;
    } catch (error) {
      if (!(error instanceof NotProvided) || unpacked.has(error.tree)) return `It does not start: ${String(error)}`;
      unpacked.add(error.tree);
      process.stdout.write(`servers: unpacking ${error.packages.join(', ')} from Debian packages\n`);
      const failure = await unpackDebian(error.packages, error.tree).catch((reason: unknown) => reason);
      if (failure !== undefined) return hint(error.packages, failure);
    }
  }
}

function hint(packages: readonly string[], failure: unknown): string {
  const install = `sudo apt-get update && sudo apt-get install --no-install-recommends ${packages.join(' ')}`;
  return `It is not on PATH and could not be unpacked from Debian packages. Run:\n\n  ${install}\n\n${String(failure)}`;
}

const missing: Record<string, string> = {};
// One after the other: the time is that of the disk and of the mirror.
for (const [name, attempt] of Object.entries(SERVERS)) {
  const startedAt = performance.now();
  const reason = await obtain(attempt);
  const seconds = ((performance.now() - startedAt) / 1_000).toFixed(1);
  console.log(`servers: ${name} ${reason === undefined ? 'is there' : 'CAN’T BE HAD'} (${seconds} s)`);
  if (reason === undefined) continue;
  missing[name] = reason;
  console.log(reason);
}
// Built here so that tests which start beside each other do not all build it; where it can't be, they say so.
using _clock = await clockShim();

const record = join(import.meta.dirname, '../..', MISSING_FILE);
await mkdir(dirname(record), { recursive: true });
await writeFile(record, `${JSON.stringify(missing, undefined, 2)}\n`);
if (process.argv.includes('--all') && Object.keys(missing).length > 0) process.exitCode = 1;
