/** One of two processes that hand a lock, and a bare message, to each other. Times are of the clock that both share. */
import { setImmediate as nextTurn } from 'node:timers/promises';
import { Redis } from 'ioredis';
import { Holdfast, type Lease } from 'holdfast';
import { redis } from 'holdfast/redis';
import { serve, setup } from '../child.js';

const { port, inbox, outbox } = setup() as { port: number; inbox: string; outbox: string };
const client = new Redis(port);
const locks = new Holdfast(redis(client));
await locks.ready();
const lock = locks.mutex('handed');

const subscriber = new Redis(port);
let heard = (_at: string): void => {};
let message = nextMessage();
subscriber.on('message', () => heard(now()));
await subscriber.subscribe(inbox);

let lease: Promise<{ lease: Lease; at: string }>;

const ACTIONS = {
  /** Answers when the claim stands in line, or holds. */
  enter: async () => {
    lease = lock.acquire().then((held) => ({ lease: held, at: now() }));
    await nextTurn();
    // Behind the claim on the same connection.
    await client.ping();
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
    await client.publish(outbox, 'x');
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
