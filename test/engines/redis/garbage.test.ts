/** Whoever may publish on the server can write into an inbox: what makes no sense there costs nobody a process or a lock. */
import { expect, test } from 'vitest';
import { Holdfast } from '../../../src/index.js';
import { startRedis } from '../../servers/redis.js';
import { command } from '../../servers/resp.js';
import { queued, urlOf } from './faults-kit.js';

test('messages that make no sense are passed over, and the next that does is heard', async () => {
  await using server = await startRedis();
  await using holder = new Holdfast(urlOf(server.port), { ttl: '60s' });
  await using waiter = new Holdfast(urlOf(server.port), { ttl: '60s' });
  const lease = await holder.mutex('job').acquire();
  const waiting = waiter.mutex('job').acquire({ timeout: '15s' });
  await queued(holder.mutex('job'), 1);
  const { claims } = await holder.mutex('job').inspect();
  const { id } = claims.find(({ state }) => state === 'waiting')!;
  const inboxes = (await command(server.port, 'PUBSUB', 'CHANNELS')) as string[];
  expect(inboxes).toHaveLength(2);
  for (const inbox of inboxes)
    for (const text of [
      '',
      'granted',
      `granted ${id}`,
      `granted ${id} `,
      `granted ${id} many`,
      `granted ${id} 0x10`,
      'x',
    ])
      expect(await command(server.port, 'PUBLISH', inbox, text)).toBe(1);
  expect(await lease.release()).toBe(true);
  const next = await waiting;
  expect(next.token).toBeGreaterThan(lease.token);
  expect(await next.release()).toBe(true);
});
