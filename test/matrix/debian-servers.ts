/**
 * Servers of a newer Debian than this system's, unpacked with all their libraries and started by the loader they came
 * with, so nothing of this system matters to them.
 *
 *     .cache/matrix/valkey-8/tree               what the packages hold
 *     .cache/matrix/valkey-8/bin/redis-server   starts it; a PATH that begins with this folder makes tests use it
 */
import { execFileSync } from 'node:child_process';
import { existsSync, mkdirSync, readdirSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

interface DebianServer {
  readonly suite: string;
  readonly packages: readonly string[];
  readonly program: string;
  /** What the tests look for. */
  readonly as: string;
}

export const DEBIAN_SERVERS: Readonly<Record<string, DebianServer>> = {
  'redis-8': {
    suite: 'trixie',
    packages: ['redis-server', 'redis-tools'],
    program: 'usr/bin/redis-server',
    as: 'redis-server',
  },
  'valkey-8': {
    suite: 'trixie',
    packages: ['valkey-server', 'valkey-tools'],
    program: 'usr/bin/valkey-server',
    as: 'redis-server',
  },
  'mysql-9': {
    suite: 'sid',
    packages: ['mysql-server-core'],
    program: 'usr/sbin/mysqld',
    as: 'mysqld',
  },
  'etcd-3.5': {
    suite: 'trixie',
    packages: ['etcd-server'],
    program: 'usr/bin/etcd',
    as: 'etcd',
  },
};

const CACHE = join(import.meta.dirname, '../../.cache/matrix');
const KEYRING = '/usr/share/keyrings/debian-archive-keyring.gpg';

/** The folder for PATH; the first time it is fetched. */
export function folderOf(name: string): string {
  const server = DEBIAN_SERVERS[name];
  if (server === undefined) throw new Error(`no server is called ${name}`);
  const home = join(CACHE, name);
  if (!existsSync(home)) {
    const work = `${home}.new`;
    rmSync(work, { recursive: true, force: true });
    unpack(server, work);
    writeStarter(server, work, home);
    renameSync(work, home);
  }
  return join(home, 'bin');
}

/** Where this system's own packages come from. */
function mirror(): string {
  const words = ['indextargets', '--format', '$(SITE)', 'Created-By: Packages', 'Component: main'];
  return execFileSync('apt-get', words, { encoding: 'utf8' }).split('\n')[0] ?? '';
}

/** apt believes that nothing is installed and that there is this suite only. */
function unpack({ suite, packages }: DebianServer, work: string): void {
  const apt = join(work, 'apt');
  for (const folder of ['lists/partial', 'cache/archives/partial']) mkdirSync(join(apt, folder), { recursive: true });
  writeFileSync(join(apt, 'sources'), `deb [signed-by=${KEYRING}] ${mirror()} ${suite} main\n`);
  writeFileSync(join(apt, 'status'), '');
  const settings = [
    ...[`Dir::Etc::SourceList=${join(apt, 'sources')}`, 'Dir::Etc::SourceParts=/dev/null'],
    ...[`Dir::State=${apt}`, `Dir::State::status=${join(apt, 'status')}`, `Dir::Cache=${join(apt, 'cache')}`],
    // As root apt would drop to a user who may not write here.
    ...['APT::Install-Recommends=0', 'APT::Sandbox::User=root', 'Acquire::Languages=none', 'Acquire::Retries=2'],
  ];
  const options = ['-qq', '-y', ...settings.flatMap((setting) => ['-o', setting])];
  command('apt-get', [...options, 'update']);
  command('apt-get', [...options, '--download-only', 'install', ...packages]);
  const archives = join(apt, 'cache/archives');
  for (const file of readdirSync(archives).filter((name) => name.endsWith('.deb')))
    command('dpkg-deb', ['-x', join(archives, file), join(work, 'tree')]);
  rmSync(apt, { recursive: true });
}

function writeStarter({ program, as }: DebianServer, work: string, home: string): void {
  const libraries = readdirSync(join(work, 'tree/usr/lib')).find((name) => name.endsWith('-linux-gnu'));
  const folder = join('tree/usr/lib', libraries ?? '');
  const loader = readdirSync(join(work, folder)).find((name) => /^ld-linux.*\.so\.\d+$/.test(name));
  const words = [join(home, folder, loader ?? ''), '--library-path', join(home, folder), join(home, 'tree', program)];
  mkdirSync(join(work, 'bin'));
  const script = `#!/bin/sh\nexec ${words.map((word) => `'${word}'`).join(' ')} "$@"\n`;
  writeFileSync(join(work, 'bin', as), script, { mode: 0o755 });
}

function command(file: string, args: readonly string[]): void {
  const env = { ...process.env, LC_ALL: 'C', DEBIAN_FRONTEND: 'noninteractive' };
  execFileSync(file, args, { env, stdio: ['ignore', 'ignore', 'inherit'] });
}
