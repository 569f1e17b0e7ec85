/**
 * The recipes of docs/fencing.md run as they stand, on real servers, and print what their last lines say. They import
 * 'holdfast' as a user does, so `dist` must have been built.
 *
 * Prisma's client is generated, by a tool of three hundred megabytes: `npm run test:matrix -- prisma` runs its recipe.
 */
import { execFile } from 'node:child_process';
import { readdirSync, readFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { startMariadb } from '../../servers/mariadb.js';
import { startPostgres } from '../../servers/postgres.js';
import { startRedis } from '../../servers/redis.js';
import type { Server } from '../../servers/server.js';

const run = promisify(execFile);
const FOLDER = resolve(import.meta.dirname, '../../../examples/fence');
const NEEDS = { 'prisma.mjs': 'PRISMA_CLIENT' } as Readonly<Record<string, string>>;

let servers: readonly Server[];
let env: NodeJS.ProcessEnv;

beforeAll(async () => {
  servers = await Promise.all([startPostgres(), startMariadb(), startRedis()]);
  const [postgres, mariadb, redis] = servers.map(({ port }) => port);
  env = {
    ...process.env,
    POSTGRES_URL: `postgres://postgres@127.0.0.1:${postgres}/postgres`,
    MYSQL_URL: `mysql://root@127.0.0.1:${mariadb}/test`,
    REDIS_URL: `redis://127.0.0.1:${redis}`,
  };
});
afterAll(() => Promise.all(servers.map((server) => server.stop())));

const recipes = readdirSync(FOLDER).filter((file) => {
  const needed = NEEDS[file];
  return needed === undefined || process.env[needed] !== undefined;
});

test.each(recipes)('%s', async (file) => {
  const [, promised] = readFileSync(join(FOLDER, file), 'utf8').split('\n// Output:\n');
  const { stdout } = await run(
    process.execPath,
    [...(file === 'prisma.mjs' ? ['--import', 'tsx'] : []), join(FOLDER, file)],
    // Clients are loaded, servers are asked: a second, and a minute on a machine that has too much to do.
    { env, timeout: 120_000 },
  );
  expect(stdout).toBe(promised!.replaceAll(/^\/\/ /gm, ''));
});
