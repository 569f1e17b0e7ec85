/** `rediss://`: the certificate is checked, as Node does it. The one in tls/ is for localhost and 127.0.0.1. */
import { execFile } from 'node:child_process';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { expect, test } from 'vitest';
import { freePort } from '../../servers/ports.js';
import { startRedis } from '../../servers/redis.js';

const folder = join(import.meta.dirname, 'tls');
const certificate = join(folder, 'certificate.pem');

const SCRIPT = `
import { Holdfast } from 'holdfast';
const locks = new Holdfast(process.env.LOCKS, { ttl: '6s' });
try {
  console.log(await locks.mutex('a').run(async (lease) => lease.held));
} catch (error) {
  console.log(error.code, error.message);
}
await locks.close();
`;

test('a certificate that is trusted is taken, and one that is not is told', async () => {
  const tlsPort = await freePort();
  await using _redis = await startRedis({
    args: [
      ...['--tls-port', `${tlsPort}`, '--tls-auth-clients', 'no', '--tls-ca-cert-file', certificate],
      // The second address is in no certificate.
      ...['--bind', '127.0.0.1', '127.0.0.2'],
      ...['--tls-cert-file', certificate, '--tls-key-file', join(folder, 'key.pem')],
    ],
  });
  const run = async (env: Readonly<Record<string, string>>): Promise<string> => {
    const { stdout } = await promisify(execFile)(process.execPath, ['--input-type=module', '-e', SCRIPT], {
      cwd: join(import.meta.dirname, '../../..'),
      env: { ...process.env, LOCKS: `rediss://localhost:${tlsPort}?epochGuard=false`, ...env },
    });
    return stdout.trim();
  };
  expect(await run({ NODE_EXTRA_CA_CERTS: certificate })).toBe('true');
  for (const host of ['127.1', '127.0.0.2']) {
    const elsewhere = `rediss://${host}:${tlsPort}?epochGuard=false`;
    expect(await run({ NODE_EXTRA_CA_CERTS: certificate, LOCKS: elsewhere })).toMatch(/^HOLDFAST_ENGINE .*altnames/);
  }
  expect(await run({ NODE_EXTRA_CA_CERTS: '' })).toMatch(/^HOLDFAST_ENGINE .*self-signed certificate/);
});
