/** `tls=true`: the server's certificate and its name are checked, before user and password are sent. */
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { ConfigError, Holdfast } from '../../../src/index.js';
import { sql, startMariadb } from '../../servers/mariadb.js';
import type { Server } from '../../servers/server.js';

const file = (name: string): string => join(import.meta.dirname, 'tls', name);

/** What each has a certificate for, of an authority of its own. */
const SERVERS = ['ours', 'named', 'evil'] as const; // localhost and 127.0.0.1; localhost; evil.example
type Name = (typeof SERVERS)[number];

const servers = new Map<Name, Server>();

beforeAll(async () => {
  for (const name of SERVERS) {
    const server = await startMariadb({
      args: [`--ssl-cert=${file(`${name}.pem`)}`, `--ssl-key=${file(`${name}.key`)}`],
    });
    servers.set(name, server);
    await sql(server.port, 'CREATE USER safe REQUIRE SSL; GRANT ALL ON test.* TO safe');
  }
});
afterAll(async () => {
  await Promise.all([...servers.values()].map((server) => server.stop()));
});

async function use(name: Name, host: string, ca: Name): Promise<unknown> {
  const url = `mysql://safe@${host}:${servers.get(name)!.port}/test?strategy=row&tls=true&ca=${encodeURIComponent(file(`${ca}-ca.pem`))}`;
  await using locks = new Holdfast(url, { ttl: '10s' });
  return await locks
    .mutex('a')
    .run({ timeout: '3s' }, ({ held }) => held)
    .catch((error: unknown) => String(error));
}

test('a certificate of the authority that is trusted, for the name or the address that is asked for', async () => {
  expect(await use('ours', 'localhost', 'ours')).toBe(true);
  expect(await use('ours', '127.0.0.1', 'ours')).toBe(true);
  expect(await use('named', 'localhost', 'named')).toBe(true);
});

test.each([
  ['by name', 'evil', 'localhost'],
  ['by address', 'evil', '127.0.0.1'],
  // Node.js takes a server without a name for localhost.
  ['by an address that it is not for', 'named', '127.0.0.1'],
] as const)('a certificate for another name is refused, %s', { concurrent: true }, async (_how, name, host) => {
  expect(await use(name, host, name)).toMatch(/certificate is not trusted: .*does not match/);
});

test('a certificate of another authority is refused', { concurrent: true }, async () => {
  expect(await use('ours', 'localhost', 'evil')).toMatch(
    /certificate is not trusted: .*(verify|signature|certificate)/,
  );
});

test('what can’t be meant is refused before anything is asked', async () => {
  expect(() => new Holdfast(`mysql://localhost/test?ca=${file('ours-ca.pem')}`)).toThrow(/tls=true/);
  await using locks = new Holdfast('mysql://localhost/test?tls=true&ca=/nowhere.pem');
  await expect(locks.mutex('a').acquire()).rejects.toThrow(ConfigError);
});
