/**
 * One PostgreSQL: user `postgres`, no password, everything on loopback. Without fsync, so that a start takes no time; a
 * kill -9 loses nothing all the same, because the kernel lives on.
 *
 * initdb takes most of a second, so it runs once, into .cache of this checkout, and every server gets a copy.
 */
import { execFile, spawnSync } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { access, copyFile, mkdir, mkdtemp, rename, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { Client } from 'pg';
import { withFolderLock } from './folder-lock.js';
import { LOOPBACK } from './ports.js';
import { type Program, provide } from './provide.js';
import { type Place, type Server, type ServerOptions, startServer } from './server.js';

const CACHE = fileURLToPath(new URL('../../.cache', import.meta.url));
/** Whichever version this Debian has. */
const PACKAGES = ['postgresql'];

export interface PostgresOptions extends Pick<ServerOptions, 'choosePort' | 'env'> {
  /** Settings such as `{ fsync: 'on' }`. */
  readonly settings?: Readonly<Record<string, string>>;
  /** Files in PEM, of a server that also speaks TLS. */
  readonly tls?: { readonly certificate: string; readonly key: string };
}

export async function startPostgres(options: PostgresOptions = {}): Promise<Server> {
  const program = provide('postgres', PACKAGES);
  const initdb = provide('initdb', PACKAGES);
  const settings = {
    fsync: 'off',
    full_page_writes: 'off',
    max_connections: '200',
    unix_socket_directories: '',
    ...(options.tls && { ssl: 'on', ssl_cert_file: 'certificate.pem', ssl_key_file: 'key.pem' }),
    ...options.settings,
  };
  return startServer({
    ...options,
    name: 'postgres',
    program: asNobodyInParticular(program),
    args: ({ port, data }) => [
      ...['-D', data, '-p', `${port}`, '-h', LOOPBACK],
      ...Object.entries(settings).flatMap(([name, value]) => ['-c', `${name}=${value}`]),
    ],
    prepare: (place) => prepare(initdb, place, options.tls),
    ready: answers,
    // The default signal waits until every client has gone by itself.
    stopSignal: 'SIGINT',
    readyWithinMs: 30_000,
  });
}

/** One statement, on a connection of its own. */
export async function sql<Row = Record<string, unknown>>(
  port: number,
  text: string,
  values?: unknown[],
): Promise<Row[]> {
  const client = new Client({ host: LOOPBACK, port, user: 'postgres', database: 'postgres' });
  // A server that dies in the meantime is told by the rejection.
  client.on('error', () => {});
  await client.connect();
  try {
    return (await client.query(text, values)).rows as Row[];
  } finally {
    await client.end();
  }
}

async function answers({ port }: Place): Promise<boolean> {
  return (await sql(port, 'SELECT 1')).length === 1;
}

async function prepare(initdb: Program, { data }: Place, tls: PostgresOptions['tls']): Promise<void> {
  // After a crash its old process may still be a zombie, which PostgreSQL takes for a living one.
  await rm(join(data, 'postmaster.pid'), { force: true });
  if (await exists(join(data, 'PG_VERSION'))) return;
  // Its folder exists already; the dot is what is in it.
  await run('cp', ['-r', `${await template(initdb)}/.`, data]);
  if (tls) {
    await copyFile(tls.certificate, join(data, 'certificate.pem'));
    await copyFile(tls.key, join(data, 'key.pem'));
  }
  await run('chmod', ['-R', 'u=rwX,go=', data]);
  await giveAway(data);
}

async function template(initdb: Program): Promise<string> {
  const { stdout } = await run(initdb.command, [...initdb.args, '--version'], initdb.env);
  const folder = join(CACHE, `postgres-${/\d+(\.\d+)*/.exec(stdout)?.[0] ?? 'unknown'}`);
  if (await exists(folder)) return folder;
  await mkdir(CACHE, { recursive: true });
  await withFolderLock(`${folder}.lock`, async () => {
    if (await exists(folder)) return;
    const made = await mkdtemp(join(tmpdir(), 'holdfast-initdb-'));
    await giveAway(made);
    const { command, args, env } = asNobodyInParticular(initdb);
    const words = ['-D', made, '-A', 'trust', '-U', 'postgres', '--no-sync', '--no-locale', '-E', 'UTF8'];
    await run(command, [...args, ...words], env);
    const copy = `${folder}.${randomUUID()}`;
    await run('cp', ['-r', made, copy]);
    await rm(made, { recursive: true });
    try {
      await rename(copy, folder);
    } catch (error) {
      // The lock may have let in two of us: then the first one's is as good.
      if (!(await exists(folder))) throw error;
      await rm(copy, { recursive: true });
    }
  });
  return folder;
}

/** PostgreSQL refuses to run as root. Whoever changes the user has to tell the kernel anew whom the process ends with. */
export function asNobodyInParticular(program: Program): Program {
  const user = whom();
  if (!user) return program;
  const words = [`--reuid=${user.uid}`, `--regid=${user.gid}`, '--clear-groups', '--pdeathsig', 'KILL', '--'];
  return { ...program, command: 'setpriv', args: [...words, program.command, ...program.args] };
}

async function giveAway(folder: string): Promise<void> {
  const user = whom();
  if (user) await run('chown', ['-R', `${user.uid}:${user.gid}`, folder]);
}

function whom(): { readonly uid: string; readonly gid: string } | undefined {
  if (process.getuid?.() !== 0) return undefined;
  const name = spawnSync('id', ['-u', 'postgres']).status === 0 ? 'postgres' : 'nobody';
  const idOf = (flag: string): string => spawnSync('id', [flag, name], { encoding: 'utf8' }).stdout.trim();
  return { uid: idOf('-u'), gid: idOf('-g') };
}

function run(command: string, args: readonly string[], env: Program['env'] = {}): Promise<{ stdout: string }> {
  // Not in a folder that another user may not enter.
  return promisify(execFile)(command, [...args], { cwd: '/', env: { ...process.env, ...env } });
}

async function exists(path: string): Promise<boolean> {
  return access(path).then(
    () => true,
    () => false,
  );
}
