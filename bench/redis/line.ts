/**
 * A process whose line always has so many waiters: who was served goes to the back. Asked for a number, it lets so many
 * be served and answers how long that took; in between, the holder keeps its lease.
 */
import { Redis } from 'ioredis';
import { Holdfast, type Lease } from 'holdfast';
import { redis } from 'holdfast/redis';
import { serve, setup } from '../child.js';

const { port, waiters } = setup() as { port: number; waiters: number };
const locks = new Holdfast(redis(new Redis(port)), {
  namespace: `line-${waiters}`,
  cohort: false,
  maxWaiters: waiters + 1,
});
const lock = locks.mutex('job');

let turns = 0;
let resume = (): void => {};
let finish = (): void => {};

const first = await lock.acquire();
for (let waiter = 0; waiter < waiters; waiter += 1) void wait();
while ((await lock.inspect()).claims.length <= waiters);
void use(first).then(wait);
serve(async (wanted) => {
  const finished = new Promise<void>((resolve) => (finish = resolve));
  const startedAt = performance.now();
  turns = Number(wanted);
  resume();
  await finished;
  return performance.now() - startedAt;
});

async function wait(): Promise<never> {
  for (;;) await use(await lock.acquire());
}

async function use(lease: Lease): Promise<void> {
  if (turns === 0) await new Promise<void>((resolve) => (resume = resolve));
  turns -= 1;
  if (turns === 0) finish();
  await lease.release();
}
