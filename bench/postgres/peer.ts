/** One of two processes that hand a lock, and a bare NOTIFY, to each other. Times are of the clock that both share. */
import { Holdfast, type Lease } from 'holdfast';
import { postgres } from 'holdfast/postgres';
import { Client, Pool } from 'pg';
import { serve, setup } from '../child.js';

const { port, inbox, outbox } = setup() as { port: number; inbox: string; outbox: string };
const server = { host: '127.0.0.1', port, user: 'postgres', database: 'postgres' };
const pool = new Pool(server);
const locks = new Holdfast(postgres(pool), { ttl: '30s' });
await locks.ready();
const lock = locks.mutex('handed');

const subscriber = new Client(server);
await subscriber.connect();
let heard = (_at: string): void => {};
let message = nextMessage();
subscriber.on('notification', () => heard(now()));
await subscriber.query(`LISTEN ${inbox}`);

let lease: Promise<{ lease: Lease; at: string }>;

const ACTIONS = {
  /** Answers when the claim stands in line, or holds. */
  enter: async () => {
    const claims = (await lock.inspect()).claims.length;
    lease = lock.acquire().then((held) => ({ lease: held, at: now() }));
    while ((await lock.inspect()).claims.length === claims);
  },
  granted: async () => (await lease).at,
  release: async () => {
    const held = await lease;
    const at = now();
    await held.lease.release();
    return at;
  },
  publish: async () => {
    const at = now();
    await pool.query({ name: 'publish', text: 'SELECT pg_notify($1, $2)', values: [outbox, 'x'] });
    return at;
  },
  heard: async () => {
    const at = await message;
    message = nextMessage();
    return at;
  },
} as const;

serve((action) => ACTIONS[action as keyof typeof ACTIONS]());

function now(): string {
  return `${process.hrtime.bigint()}`;
}

function nextMessage(): Promise<string> {
  return new Promise((resolve) => (heard = resolve));
}
