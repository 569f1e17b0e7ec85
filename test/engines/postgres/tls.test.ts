/**
 * `sslmode` and `sslrootcert` mean what they mean to psql, which is asked as well. The certificate of the server, that of the
 * Redis tests, is for localhost and 127.0.0.1, and its own authority.
 */
import { execFile } from 'node:child_process';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { ConfigError, EngineError, Holdfast } from '../../../src/index.js';
import { startPostgres } from '../../servers/postgres.js';
import { provide } from '../../servers/provide.js';
import type { Server } from '../../servers/server.js';

const certificate = join(import.meta.dirname, '../redis/tls/certificate.pem');
const key = join(import.meta.dirname, '../redis/tls/key.pem');
const other = join(import.meta.dirname, 'tls/other-authority.pem');
const NAMED = 'localhost';
/** The same server; no certificate is for it. */
const UNNAMED = '127.0.0.2';

const ROOTS = { none: undefined, 'of its authority': certificate, 'of another': other };

let server: Server;

beforeAll(async () => {
  server = await startPostgres({
    tls: { certificate, key },
    settings: { listen_addresses: '127.0.0.1,127.0.0.2' },
  });
});

afterAll(() => server.stop());

function url(host: string, mode: string, root?: string): string {
  const words = `sslmode=${mode}${root === undefined ? '' : `&sslrootcert=${encodeURIComponent(root)}`}`;
  return `postgres://postgres@${host}:${server.port}/postgres?${words}`;
}

/** How it ended: `held`, or the error. */
async function holdfast(address: string): Promise<unknown> {
  try {
    await using locks = new Holdfast(address, { ttl: '30s' });
    return (await locks.mutex('a').acquire({ timeout: '20s' })).held && 'held';
  } catch (error) {
    return error;
  }
}

async function psql(address: string): Promise<boolean> {
  const { command, args, env } = provide('psql', ['postgresql-client']);
  // It must not find certificates that somebody has at home.
  const options = { env: { ...process.env, ...env, HOME: '/nonexistent', PGSSLCRLDIR: '' } };
  return promisify(execFile)(command, [...args, address, '-c', 'SELECT 1'], options).then(
    () => true,
    () => false,
  );
}

describe.each([
  ['require', NAMED, 'none', true],
  ['require', NAMED, 'of its authority', true],
  ['require', UNNAMED, 'of its authority', true],
  ['require', NAMED, 'of another', false],
  ['verify-ca', UNNAMED, 'of its authority', true],
  ['verify-ca', NAMED, 'of another', false],
  ['verify-full', NAMED, 'of its authority', true],
  ['verify-full', '127.0.0.1', 'of its authority', true],
  ['verify-full', UNNAMED, 'of its authority', false],
  ['verify-full', NAMED, 'of another', false],
] as const)('sslmode %s, host %s, root certificate %s', (mode, host, root, trusted) => {
  test(`the server is ${trusted ? '' : 'not '}trusted, as by psql`, async () => {
    const address = url(host, mode, ROOTS[root]);
    expect(await psql(address)).toBe(trusted);
    const outcome = await holdfast(address);
    if (trusted) expect(outcome).toBe('held');
    else {
      expect(outcome).toBeInstanceOf(EngineError);
      expect(String(outcome)).toMatch(/certificate/);
    }
  });
});

test.each([
  ['a file that is not there', 'verify-full', '/nowhere/root.pem', /'sslrootcert' can't be read/],
  ['a folder', 'require', '/', /'sslrootcert' can't be read/],
  ['a file without a certificate', 'verify-ca', import.meta.filename, /no certificate/],
  ['an authority, and no encryption', 'disable', certificate, /'sslrootcert' is of no use/],
  ['verify-ca, and no authority', 'verify-ca', undefined, /needs 'sslrootcert'/],
])('%s is a ConfigError that says so', async (_, mode, root, words) => {
  const outcome = await holdfast(url(NAMED, mode, root));
  expect(outcome).toBeInstanceOf(ConfigError);
  expect(String(outcome)).toMatch(words);
});
