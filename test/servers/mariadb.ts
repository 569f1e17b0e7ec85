/**
 * One MariaDB, or the MySQL that HOLDFAST_MYSQL names (`npm run test:matrix -- mysql-9`); user root without a password,
 * database `test`. Nothing is synced to disk unless asked: what a test kills is the process, and the kernel keeps what
 * it wrote.
 *
 * To make the system tables takes seconds, so they are made once, into .cache, and copied for each server.
 */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync } from 'node:fs';
import { cp, mkdir, mkdtemp, readFile, rename, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { createConnection, type RowDataPacket } from 'mysql2/promise';
import { withFolderLock } from './folder-lock.js';
import { LOOPBACK } from './ports.js';
import { type Program, provide } from './provide.js';
import { type Place, type Server, type ServerOptions, startServer } from './server.js';

const TEMPLATES = fileURLToPath(new URL('../../.cache/mysql', import.meta.url));

export interface MariadbOptions extends Pick<ServerOptions, 'choosePort' | 'env' | 'prepare'> {
  /** More words of the command line; later ones win. */
  readonly args?: readonly string[];
  /** Whether a commit waits for the disk. Default: false. */
  readonly sync?: boolean;
}

interface Flavour {
  readonly name: string;
  readonly program: Program;
  /** Words that every start needs: where the program's files lie. */
  readonly home: readonly string[];
  /** Fills an empty data folder. */
  readonly fill: (data: string) => Promise<void>;
}

export async function startMariadb(options: MariadbOptions = {}): Promise<Server> {
  const flavour = process.env['HOLDFAST_MYSQL'] === undefined ? mariadb() : mysql();
  const template = await templateOf(flavour);
  const { args = [], sync = false, ...rest } = options;
  return startServer({
    ...rest,
    name: flavour.name,
    program: flavour.program,
    readyWithinMs: 30_000,
    args: ({ port, data }) => [
      ...flavour.home,
      ...[`--datadir=${data}`, `--port=${port}`, `--bind-address=${LOOPBACK}`, '--skip-name-resolve'],
      // A path of a socket may have no more than 107 bytes; what runs here needs none that others find.
      ...[`--socket=${join(data, 'sock')}`, `--pid-file=${join(data, 'pid')}`],
      // Whoever starts deletes all temporary tables in this folder, also those of others.
      `--tmpdir=${join(data, 'tmp')}`,
      ...['--innodb-buffer-pool-size=32M', '--performance-schema=OFF', '--max-connections=500'],
      ...(sync ? [] : ['--innodb-flush-log-at-trx-commit=2']),
      ...args,
    ],
    prepare: async (place) => {
      const { data } = place;
      await rest.prepare?.(place);
      if (!existsSync(join(data, 'mysql'))) await cp(template, data, { recursive: true });
      await mkdir(join(data, 'tmp'), { recursive: true });
      // A killed server that nobody has waited for yet looks alive to the next one.
      for (const file of ['sock', 'sock.lock', 'pid']) await rm(join(data, file), { force: true });
    },
    ready: answers,
  });
}

/** One query on a connection of its own. */
export async function sql(port: number, text: string, database = 'test'): Promise<RowDataPacket[]> {
  const connection = await createConnection({ host: LOOPBACK, port, user: 'root', database, multipleStatements: true });
  try {
    const [rows] = await connection.query<RowDataPacket[]>(text);
    return rows;
  } finally {
    connection.destroy();
  }
}

/** A `typeCast` of a user's, for connections whose values nobody but the user can read. */
export function oddCast(field: { string(): string | null }): never {
  return { odd: field.string() } as never;
}

async function answers({ port }: Place): Promise<boolean> {
  await sql(port, 'CREATE DATABASE IF NOT EXISTS test', 'mysql');
  return true;
}

function mariadb(): Flavour {
  const program = provide('mariadbd', ['mariadb-server-core']);
  const share = join(program.root, 'usr/share/mysql');
  const home = [
    ...['--no-defaults', ...asRoot(), `--lc-messages-dir=${share}`, `--character-sets-dir=${share}/charsets`],
    ...['--innodb-log-file-size=16M', `--plugin-dir=${join(program.root, 'usr/lib/mysql/plugin')}`],
  ];
  const fill = async (data: string): Promise<void> => {
    const files = ['mysql_system_tables.sql', 'mysql_system_tables_data.sql'];
    const scripts = await Promise.all(files.map((file) => readFile(join(share, file), 'utf8')));
    // What mariadb-install-db does, which needs programs of packages that are not unpacked. A line, a statement.
    const input = [
      'CREATE DATABASE mysql;',
      'USE mysql;',
      'SET @auth_root_socket = NULL, @skip_auth_anonymous = 1;',
      ...scripts,
      'FLUSH PRIVILEGES;',
      "CREATE USER IF NOT EXISTS 'root'@'127.0.0.1';",
      "GRANT ALL ON *.* TO 'root'@'127.0.0.1' WITH GRANT OPTION;",
      '',
    ].join('\n');
    await run(program, [...home, '--bootstrap', `--datadir=${data}`], input);
  };
  return { name: 'mariadb', program, home, fill };
}

/** HOLDFAST_MYSQL: the folder of an unpacked MySQL, with its starter in `bin`. */
function mysql(): Flavour {
  const folder = process.env['HOLDFAST_MYSQL']!;
  const root = join(folder, 'tree');
  const program = { command: join(folder, 'bin/mysqld'), args: [], env: {}, root };
  const share = join(root, 'usr/share/mysql');
  const home = [
    ...['--no-defaults', ...asRoot(), `--lc-messages-dir=${share}`, `--character-sets-dir=${share}/charsets`],
    ...['--mysqlx=OFF', '--skip-log-bin', '--secure-file-priv=', '--innodb-redo-log-capacity=32M'],
  ];
  const fill = async (data: string): Promise<void> => {
    const init = `${data}.sql`;
    const grant = "CREATE USER 'root'@'127.0.0.1'; GRANT ALL ON *.* TO 'root'@'127.0.0.1' WITH GRANT OPTION;";
    await writeFile(init, grant);
    await run(program, [...home, '--initialize-insecure', `--init-file=${init}`, `--datadir=${data}`], '');
    await rm(init);
  };
  return { name: 'mysql', program, home, fill };
}

function asRoot(): readonly string[] {
  return process.getuid?.() === 0 ? ['--user=root'] : [];
}

async function templateOf({ name, fill }: Flavour): Promise<string> {
  const template = join(TEMPLATES, name);
  await mkdir(TEMPLATES, { recursive: true });
  await withFolderLock(`${template}.lock`, async () => {
    if (existsSync(template)) return;
    const work = await mkdtemp(`${template}.new-`);
    try {
      await fill(work);
      // The lock may have let in two of us: then the first one's is as good.
      await rename(work, template).catch((error: unknown) => {
        if (!existsSync(template)) throw error;
      });
    } finally {
      await rm(work, { recursive: true, force: true });
    }
  });
  return template;
}

async function run({ command, args, env }: Program, more: readonly string[], input: string): Promise<void> {
  const child = spawn(command, [...args, ...more], { env: { ...process.env, ...env } });
  let printed = '';
  for (const stream of [child.stdout, child.stderr]) stream.on('data', (data) => (printed += String(data)));
  child.stdin.end(input);
  const [code] = (await once(child, 'close')) as [number | null];
  if (code !== 0) throw new Error(`${command} ended with ${code}:\n${printed.slice(-3_000)}`);
}
