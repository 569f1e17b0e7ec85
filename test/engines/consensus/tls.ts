/**
 * Certificates are checked on both sides. The one of the Redis tests is for localhost, and its own authority. What etcd and
 * ZooKeeper have in common.
 */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import type { EngineSource } from '../../../src/core/engine.js';
import { type Duration, EngineError, Holdfast } from '../../../src/index.js';
import { until } from '../../servers/lines.js';
import type { Server } from '../../servers/server.js';
import { startNamedServer } from '../named-server.js';

const folder = join(import.meta.dirname, '../redis/tls');
export const certificate = join(folder, 'certificate.pem');
export const key = join(folder, 'key.pem');
export const tls = { ca: readFileSync(certificate), cert: readFileSync(certificate), key: readFileSync(key) };

interface TlsSetup {
  /** Of encrypted URLs: `etcds`. */
  readonly scheme: string;
  /** It asks for certificates. */
  readonly server: () => Server;
  readonly source: (urls: string | string[], options: { readonly tls: Partial<typeof tls> }) => EngineSource;
}

export function testTls({ scheme, server, source }: TlsSetup): void {
  const url = (): string => `${scheme}://localhost:${server().port}`;

  test('with certificates in code', async () => {
    await using locks = new Holdfast(source([`localhost:${server().port}`], { tls }));
    expect(await locks.mutex('a').run((lease) => lease.held)).toBe(true);
  });

  test('with certificates in files that the URL names', async () => {
    await using locks = new Holdfast(`${url()}?ca=${certificate}&cert=${certificate}&key=${key}`);
    expect(await locks.mutex('a').run((lease) => lease.held)).toBe(true);
  });

  test('a server that we do not trust, and a server that does not trust us, are told', async () => {
    await using distrusting = new Holdfast(`${url()}?cert=${certificate}&key=${key}`);
    // Shaking hands takes a moment on a busy machine, and what went wrong is known only afterwards.
    const distrusted = await acquire(distrusting, '5s');
    expect(distrusted).toBeInstanceOf(EngineError);
    expect(String(distrusted)).toMatch(/self-signed certificate/);
    await using anonymous = new Holdfast(source(url(), { tls: { ca: tls.ca } }));
    expect(await acquire(anonymous)).toBeInstanceOf(EngineError);
  });

  test('a server whose certificate is for another name is not talked to', async () => {
    await using misnamed = new Holdfast(source([`127.1:${server().port}`], { tls }));
    const refused = await acquire(misnamed, '5s');
    expect(refused).toBeInstanceOf(EngineError);
    expect(String(refused)).toMatch(/altnames|ALTNAME/);
  });

  test('a certificate for localhost is none for an address, though it leads to the same server', async () => {
    await using named = await startNamedServer();
    const at = (host: string): Holdfast => new Holdfast(`${scheme}://${host}:${named.port}?ca=${named.ca}`);
    await using byAddress = at('127.0.0.1');
    expect(String(await acquire(byAddress, '5s'))).toMatch(/altnames|ALTNAME/);
    expect(named.believers()).toBe(0);
    await using byName = at('localhost');
    const refused = acquire(byName);
    await until('it is believed by its name', () => named.believers() > 0);
    await refused;
  });
}

function acquire(locks: Holdfast, timeout: Duration = '1s'): Promise<unknown> {
  return locks
    .mutex('a')
    .acquire({ timeout })
    .catch((error: unknown) => error);
}
