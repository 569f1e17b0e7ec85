/** One of several processes with several waiters each; asked for a number, every waiter takes so many turns. */
import { Redis } from 'ioredis';
import { Holdfast } from 'holdfast';
import { redis } from 'holdfast/redis';
import { useOurs } from '../memory/suite.js';
import { repeat, together } from '../measure.js';
import { serve, setup } from '../child.js';
import { RawLocks } from './raw.js';

interface Setup {
  readonly port: number;
  readonly raw: boolean;
  readonly cohort: boolean;
  readonly waiters: number;
}

const { port, raw, cohort, waiters } = setup() as Setup;
const client = new Redis(port);
const use = raw ? await rawUse() : await ourUse();
serve((turns) => together(waiters, () => repeat(Number(turns), use)));

async function rawUse(): Promise<() => Promise<void>> {
  const locks = await RawLocks.open(client);
  return () => locks.use('raw:contended');
}

async function ourUse(): Promise<() => Promise<void>> {
  const locks = new Holdfast(redis(client), { cohort });
  await locks.ready();
  const lock = locks.mutex(`contended:${cohort}`);
  return () => useOurs(lock);
}
