/** What the fault tests of Redis share: clients whose connections go where the test wants, and conditions to wait for. */
import { Redis } from 'ioredis';
import type { Lease, Lock } from '../../../src/index.js';
import { standing, until } from '../../servers/lines.js';
import { LOOPBACK } from '../../servers/ports.js';

export { queued, renewed, standing, until } from '../../servers/lines.js';

export interface UrlParts {
  readonly epochGuard?: boolean;
  readonly user?: string;
  readonly password?: string;
}

export function urlOf(port: number, { epochGuard = false, user, password = '' }: UrlParts = {}): string {
  const login = user === undefined ? '' : `${user}:${password}@`;
  return `redis://${login}${LOOPBACK}:${port}?epochGuard=${epochGuard}`;
}

/** A client of the user's own. It sends nothing twice by itself: what a lost reply costs is for us to find out. */
export function connect(port: number): Redis & Disposable {
  const client = new Redis({
    host: LOOPBACK,
    port,
    autoResendUnfulfilledCommands: false,
    maxRetriesPerRequest: 0,
    retryStrategy: () => 20,
  });
  // Without a listener ioredis prints what the test does on purpose.
  client.on('error', () => {});
  return Object.assign(client, { [Symbol.dispose]: () => client.disconnect() });
}

/** The same client, but its messages come over another port than its answers. */
export function hearingFrom(client: Redis, port: number): Redis {
  const duplicate = client.duplicate.bind(client);
  return Object.assign(client, { duplicate: (options?: object) => duplicate({ ...options, port }) });
}

/** Whether a request is a call of the script with this step among its steps. */
export function carrying(step: 'open' | 'enter' | 'leave' | 'beat'): (request: Buffer) => boolean {
  return (request) => request.includes(`\r\n${step}\r\n`);
}

export async function deserted(lock: Lock): Promise<void> {
  await until(`nobody stands in the line of ${lock.name}`, async () => {
    const { held, waiting } = await standing(lock);
    return held + waiting === 0;
  });
}

/** What the signal of a lease says when it aborts. */
export async function lossOf(lease: Lease): Promise<unknown> {
  const { signal } = lease;
  await until(`the owner of the lease on ${lease.name} is told that it is lost`, () => signal.aborted);
  return signal.reason;
}

/** What a promise rejects with. */
export async function failureOf(work: Promise<unknown>): Promise<unknown> {
  try {
    await work;
  } catch (error) {
    return error;
  }
  throw new Error('it should have failed');
}
