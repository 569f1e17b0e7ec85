/** Behind a pooler that shares connections between transactions. */
import { afterAll, beforeAll, expect, test } from 'vitest';
import { startPgBouncer } from '../../servers/pgbouncer.js';
import type { Server } from '../../servers/server.js';
import { Kit } from './kit.js';

const kit = new Kit();
let bouncer: Server;

beforeAll(async () => {
  bouncer = await startPgBouncer(kit.server.port);
});

afterAll(() => bouncer.stop());

const url = (): string => kit.url.replace(`:${kit.server.port}/`, `:${bouncer.port}/`);

test('queue: waiters are served though messages do not come through, and a warning says why it takes longer', async () => {
  // Node and the client may have something to say as well.
  const warned = new Promise<Error>((resolve) => {
    process.on('warning', function hear(warning) {
      if (warning.name !== 'HoldfastWarning') return;
      process.off('warning', hear);
      resolve(warning);
    });
  });
  const [a, b] = [kit.locks(url()), kit.locks(url())];
  for (let round = 0; round < 5; round += 1) {
    const lease = await a.mutex('x').acquire();
    const waiting = b.mutex('x').acquire();
    await lease.release();
    expect((await waiting).token).toBeGreaterThan(lease.token);
    await (await waiting).release();
  }
  expect((await warned).message).toContain('LISTEN');
});

test('advisory: is refused', async () => {
  const locks = kit.locks(url(), { strategy: 'advisory' });
  await expect(locks.mutex('x').acquire()).rejects.toMatchObject({ code: 'HOLDFAST_CONFIG' });
});
