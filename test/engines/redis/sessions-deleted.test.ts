import { expect, test } from 'vitest';
import { Holdfast } from '../../../src/index.js';
import { startRedis } from '../../servers/redis.js';
import { command } from '../../servers/resp.js';
import { urlOf } from './faults-kit.js';

/** The last session that the engine still knew of took the rest with it, and the shard looked as if nobody was there. */
test('who leaves after the sessions were deleted does not open the way to what others hold', async () => {
  await using server = await startRedis();
  const locks = (): Holdfast =>
    new Holdfast(urlOf(server.port, { epochGuard: true }), { ttl: '5s', namespace: 'gone' });
  await using holder = locks();
  await using leaver = locks();
  await using newcomer = locks();
  const lease = await holder.mutex('job').acquire();
  await leaver.mutex('other').run(() => {});
  const [sessions] = (await command(server.port, 'KEYS', '*:sessions')) as string[];
  await command(server.port, 'DEL', sessions!);
  await leaver.close();
  // What has lost its sessions grants nothing for a while.
  const taken = await newcomer.mutex('job').tryAcquire().catch(guardOnly);
  expect(taken !== undefined && lease.held).toBe(false);
});

function guardOnly(error: unknown): undefined {
  expect(error).toMatchObject({ retryAfterMs: expect.any(Number) as number });
}
