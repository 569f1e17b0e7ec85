/** One of several processes with several waiters each; asked for a number, every waiter takes so many turns. */
import { Holdfast } from 'holdfast';
import { postgres } from 'holdfast/postgres';
import { Pool } from 'pg';
import { useOurs } from '../memory/suite.js';
import { repeat, together } from '../measure.js';
import { BareLocks, useAdvisory } from './raw.js';
import { serve, setup } from '../child.js';

interface Setup {
  readonly port: number;
  readonly side: 'queue' | 'bare' | 'by hand';
  readonly waiters: number;
}

const { port, side, waiters } = setup() as Setup;
const pool = new Pool({ host: '127.0.0.1', port, user: 'postgres', database: 'postgres', max: waiters });
const use = await useOf();
serve((turns) => together(waiters, () => repeat(Number(turns), use)));

async function useOf(): Promise<() => Promise<void>> {
  if (side === 'queue') {
    const locks = new Holdfast(postgres(pool), { ttl: '30s' });
    await locks.ready();
    const lock = locks.mutex('contended');
    return () => useOurs(lock);
  }
  if (side === 'bare') {
    const bare = await BareLocks.open(pool);
    return () => bare.use('contended');
  }
  return async () => {
    const client = await pool.connect();
    await useAdvisory(client, 'contended');
    client.release();
  };
}
