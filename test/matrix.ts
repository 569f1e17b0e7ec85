/**
 * `npm run test:matrix`: what the ordinary run does on one version of Node, with one client and one server of Redis and
 * MariaDB, on and with the others; and the long form of tests that have a short one. Words choose:
 * `npm run test:matrix -- 24`, `npm run test:matrix -- redis valkey-8 mysql-9`.
 *
 * Node comes from the registry as the package `node`, into the cache of npm, and servers from Debian, into .cache;
 * nothing is installed.
 */
import { spawnSync } from 'node:child_process';
import { dirname, join } from 'node:path';
import { DEBIAN_SERVERS, folderOf } from './matrix/debian-servers.js';
import { generatePrisma } from './matrix/prisma.js';

/** The newest of each line, and one whose SQLite is too old for a write-ahead log. */
const OLD_SQLITE = '22.13.0';
const NODES = ['22', '24', '26', OLD_SQLITE];
const FENCE_SUITES = ['test/system/fence', 'test/system/optimistic'];
const NODE_SUITES = ['test/conformance', 'test/engines/sqlite', 'test/system'];
const REDIS_SUITES = ['test/matrix/redis', 'test/system/fence/redis.test.ts'];
const MYSQL_SUITES = ['test/conformance/mysql.test.ts', 'test/engines/mysql', ...FENCE_SUITES];
/** Two nodes that both take writes. */
const GALERA_SUITES = ['test/matrix/galera'];
const ETCD_SUITES = ['test/matrix/etcd', 'test/conformance/etcd', 'test/engines/etcd'];
/** Tools that build or run a program with the package: each has a file of its own. */
const PROJECTS = ['bundlers', 'runners', 'runtimes'];
/** What 200 random combinations of work, surroundings and ends come to. */
const SUPERVISOR_SUITES = ['test/system/cli/combinations.test.ts'];
const ZOOKEEPER_SUITES = ['test/matrix/zookeeper', 'test/engines/zookeeper'];

const vitest = join(import.meta.dirname, '../node_modules/vitest/vitest.mjs');

function onNode(version: string): boolean {
  const node = ['exec', '--yes', `--package=node@${version}`, '--', 'node'];
  spawnSync('npm', [...node, '--version'], { stdio: 'inherit' });
  const suites = version === OLD_SQLITE ? ['test/engines/sqlite/driver.test.ts'] : NODE_SUITES;
  return spawnSync('npm', [...node, vitest, 'run', ...suites], { stdio: 'inherit' }).status === 0;
}

/** HOLDFAST_MATRIX: tests that have a long form take it. */
function matrixOf(suites: readonly string[], path = process.env['PATH']): boolean {
  const env = { ...process.env, HOLDFAST_MATRIX: '1', PATH: path };
  return spawnSync(process.execPath, [vitest, 'run', ...suites], { stdio: 'inherit', env }).status === 0;
}

/** The server and its system tables need more than a name on PATH. */
function onMysql(name: string): boolean {
  const env = { ...process.env, HOLDFAST_MATRIX: '1', HOLDFAST_MYSQL: dirname(folderOf(name)) };
  return spawnSync(process.execPath, [vitest, 'run', ...MYSQL_SUITES], { stdio: 'inherit', env }).status === 0;
}

/** The tests take a server from PATH if there is one. */
function onServer(name: string): boolean {
  if (name.startsWith('mysql')) return onMysql(name);
  return matrixOf(name.startsWith('etcd') ? ETCD_SUITES : REDIS_SUITES, `${folderOf(name)}:${process.env['PATH']}`);
}

/** Its library is not among the servers that everybody has. */
function onGalera(): boolean {
  spawnSync('npm', ['run', 'servers', '--', 'galera'], { stdio: 'inherit' });
  return matrixOf(GALERA_SUITES);
}

/** Examples that need a generated client. */
function onPrisma(): boolean {
  const env = { ...process.env, PRISMA_CLIENT: generatePrisma() };
  const suite = 'test/system/fence/recipes.test.ts';
  return spawnSync(process.execPath, [vitest, 'run', suite], { stdio: 'inherit', env }).status === 0;
}

/** Bugs planted in the core, in engines, fences and the command line; each must be found. */
function allMutants(): boolean {
  const found = [[], ['--', 'engines']].map((words) =>
    spawnSync('npm', ['run', 'mutants', ...words], { stdio: 'inherit' }),
  );
  return found.every(({ status }) => status === 0);
}

/** Everything that reads what others have written, with a million inputs each. */
function longFuzz(): boolean {
  return spawnSync('npm', ['run', 'fuzz', '--', '--inputs', '1000000'], { stdio: 'inherit' }).status === 0;
}

function run(part: string): boolean {
  if (part === 'fuzz') return longFuzz();
  if (part === 'mutants') return allMutants();
  if (part === 'prisma') return onPrisma();
  if (PROJECTS.includes(part)) return matrixOf([`test/projects/${part}.test.ts`]);
  if (part === 'redis') return matrixOf(REDIS_SUITES);
  if (part === 'mariadb') return matrixOf(MYSQL_SUITES);
  if (part === 'galera') return onGalera();
  if (part === 'etcd') return matrixOf(ETCD_SUITES);
  if (part === 'supervisor') return matrixOf(SUPERVISOR_SUITES);
  if (part === 'zookeeper') return matrixOf(ZOOKEEPER_SUITES);
  return part in DEBIAN_SERVERS ? onServer(part) : onNode(part);
}

const words = process.argv.slice(2);
const failed: string[] = [];
for (const part of words.length > 0
  ? words
  : [
      ...NODES,
      'redis',
      'mariadb',
      'galera',
      'etcd',
      'zookeeper',
      'supervisor',
      'prisma',
      'mutants',
      'fuzz',
      ...PROJECTS,
      ...Object.keys(DEBIAN_SERVERS),
    ]) {
  console.log(`\n${/^\d/.test(part) ? 'Node ' : ''}${part}`);
  if (!run(part)) failed.push(part);
}
console.log(failed.length === 0 ? '\nmatrix: all passed' : `\nmatrix: failed: ${failed.join(', ')}`);
process.exitCode = failed.length === 0 ? 0 : 1;
