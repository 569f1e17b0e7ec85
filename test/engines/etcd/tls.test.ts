/** `etcds://`: certificates are checked on both sides. The one of the Redis tests is for localhost, and its own authority. */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { EtcdClient } from '../../../src/engines/etcd/client/client.js';
import { etcd } from '../../../src/engines/etcd/index.js';
import { type Duration, EngineError, Holdfast } from '../../../src/index.js';
import { startEtcd } from '../../servers/etcd.js';
import type { Server } from '../../servers/server.js';
import { startNamedServer } from '../named-server.js';
import { until } from './kit.js';

const folder = join(import.meta.dirname, '../redis/tls');
const certificate = join(folder, 'certificate.pem');
const key = join(folder, 'key.pem');
const tls = { ca: readFileSync(certificate), cert: readFileSync(certificate), key: readFileSync(key) };

let server: Server;

beforeAll(async () => {
  server = await startEtcd({
    scheme: 'https',
    args: ['--cert-file', certificate, '--key-file', key, '--trusted-ca-file', certificate, '--client-cert-auth'],
    ready: async ({ port }) => {
      const client = new EtcdClient({ members: [{ host: 'localhost', port, tls }], random: () => 0 });
      try {
        await client.range({ key: Buffer.from('a') }, { withinMs: 1_000 });
        return true;
      } finally {
        client.close();
      }
    },
  });
});

afterAll(() => server.stop());

test('with certificates in code', async () => {
  await using locks = new Holdfast(etcd([`localhost:${server.port}`], { tls }));
  expect(await locks.mutex('a').run((lease) => lease.held)).toBe(true);
});

test('with certificates in files that the URL names', async () => {
  const files = `ca=${certificate}&cert=${certificate}&key=${key}`;
  await using locks = new Holdfast(`etcds://localhost:${server.port}?${files}`);
  expect(await locks.mutex('a').run((lease) => lease.held)).toBe(true);
});

test('a server that we do not trust, and a server that does not trust us, are told', async () => {
  await using distrusting = new Holdfast(`etcds://localhost:${server.port}`);
  // Shaking hands takes a moment on a busy machine, and what went wrong is known only afterwards.
  const distrusted = await acquire(distrusting, '5s');
  expect(distrusted).toBeInstanceOf(EngineError);
  expect(String(distrusted)).toMatch(/self-signed certificate/);
  await using anonymous = new Holdfast(etcd(`etcds://localhost:${server.port}`, { tls: { ca: tls.ca } }));
  expect(await acquire(anonymous)).toBeInstanceOf(EngineError);
});

test('a server whose certificate is for another name is not talked to', async () => {
  await using misnamed = new Holdfast(etcd([`127.1:${server.port}`], { tls }));
  const refused = await acquire(misnamed, '5s');
  expect(refused).toBeInstanceOf(EngineError);
  expect(String(refused)).toMatch(/altnames|ALTNAME/);
});

test('a certificate for localhost is none for an address, though it leads to the same server', async () => {
  await using named = await startNamedServer();
  const at = (host: string): Holdfast => new Holdfast(`etcds://${host}:${named.port}?ca=${named.ca}`);
  await using byAddress = at('127.0.0.1');
  expect(String(await acquire(byAddress, '5s'))).toMatch(/altnames|ALTNAME/);
  expect(named.believers()).toBe(0);
  await using byName = at('localhost');
  const refused = acquire(byName);
  await until('it is believed by its name', () => named.believers() > 0);
  await refused;
});

function acquire(locks: Holdfast, timeout: Duration = '1s'): Promise<unknown> {
  return locks
    .mutex('a')
    .acquire({ timeout })
    .catch((error: unknown) => error);
}
