/**
 * The memcached engine against its two bare commands on a connection of the same kind: what tokens, proofs, sessions and
 * waiting in line cost. The bare ones have none of these.
 */
import { Holdfast } from 'holdfast';
import { startMemcached } from '../../test/servers/memcached.js';
import { type Contest, repeat, together } from '../measure.js';
import { RawLocks } from './raw.js';
import { useOurs } from '../memory/suite.js';
import { Child } from '../child.js';

const SEQUENCE = 30;
const NAMES = 16;
const LOCAL_WAITERS = 50;
const PROCESSES = 4;
const WAITERS_EACH = 8;
/** Where the bare ones take a second for a round. */
const SLOW_PAIRS = 7;

export const peer = 'bare `ms ME` and `md C` on a connection of the same kind, asking every 10 ms';

export async function* contests(): AsyncIterable<Contest> {
  await using server = await startMemcached();
  await using locks = new Holdfast(`memcached://127.0.0.1:${server.port}`);
  await locks.ready();
  using raw = new RawLocks(server.port);
  const ours = (name: string): Promise<void> => useOurs(locks.mutex(name));
  const theirs = (name: string): Promise<void> => raw.use(`raw:${name}`);
  yield {
    name: 'acquire + release, uncontended',
    operations: SEQUENCE,
    ours: () => repeat(SEQUENCE, () => ours('alone')),
    peer: () => repeat(SEQUENCE, () => theirs('alone')),
    goal: 0.8,
  };
  yield {
    name: `${NAMES} in flight on different names`,
    operations: NAMES,
    ours: () => together(NAMES, (at) => ours(`name:${at}`)),
    peer: () => together(NAMES, (at) => theirs(`name:${at}`)),
  };
  yield {
    name: `${LOCAL_WAITERS} waiters on one lock in one process`,
    operations: LOCAL_WAITERS,
    ours: () => together(LOCAL_WAITERS, () => ours('waiters')),
    peer: () => together(LOCAL_WAITERS, () => theirs('waiters')),
    goal: 1,
    pairs: SLOW_PAIRS,
  };
  yield* processes(server.port);
}

async function* processes(port: number): AsyncIterable<Contest> {
  const start = (side: 'holdfast' | 'raw'): Promise<Child[]> => {
    const setup = { port, side, waiters: WAITERS_EACH };
    return Promise.all(Array.from({ length: PROCESSES }, () => Child.start('memcached/contender.ts', setup)));
  };
  const [ours, theirs] = [await start('holdfast'), await start('raw')];
  yield {
    name: `${PROCESSES} processes × ${WAITERS_EACH} waiters on one lock`,
    operations: PROCESSES * WAITERS_EACH,
    ours: () => Promise.all(ours.map((child) => child.ask('1'))),
    peer: () => Promise.all(theirs.map((child) => child.ask('1'))),
    goal: 1,
    pairs: SLOW_PAIRS,
  };
  await Promise.all([...ours, ...theirs].map((child) => child.end()));
}
