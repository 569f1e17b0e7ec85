/** Faults that every system with a line of its own has to bear alike. What is special to one is in its own file. */
import { expect } from 'vitest';
import { type Engine, EngineError, Holdfast, type Lease, type Session } from '../../../src/index.js';
import { ALL } from '../../../src/core/line.js';
import { FaultProxy } from '../../servers/fault-proxy.js';
import type { Server } from '../../servers/server.js';
import { queued, until } from '../../servers/lines.js';

type UrlOf = (server: { readonly port: number }) => string;

/** @param about whether a request is about the lock of this name. */
export async function leaveWithoutReply(
  server: Server,
  urlOf: UrlOf,
  about: (name: string) => (request: Buffer) => boolean,
): Promise<void> {
  await using proxy = await FaultProxy.start(server.port);
  await using locks = new Holdfast(urlOf(proxy));
  await using others = new Holdfast(urlOf(server));
  const lease = await locks.mutex('lost-leave').acquire();
  const waiting = others.mutex('lost-leave').acquire();
  await queued(others.mutex('lost-leave'), 1);
  const lost = proxy.loseReplyOf(about('lost-leave'));
  expect(await lease.release()).toBe(true);
  await lost;
  await (await waiting).release();
}

interface Line {
  readonly name: string;
  readonly holder: Holdfast;
  /** Of the one who is to lose its place. */
  readonly waiter: Holdfast;
  /** Ends the session of who waits, as far as the servers are concerned. */
  readonly endSession: () => Promise<void>;
}

export async function placeLostWhileWaiting({ name, holder, waiter, endSession }: Line): Promise<void> {
  const lock = holder.mutex(name);
  const lease = await lock.acquire();
  const waiting = waiter.mutex(name).acquire();
  await queued(lock, 1);
  const [, before] = (await lock.inspect()).claims;
  await endSession();
  await until('it stands in line again', async () => {
    const [, again] = (await lock.inspect()).claims;
    return again !== undefined && again.id !== before!.id;
  });
  await lease.release();
  await (await waiting).release();
}

/** @param own is not used by anybody else. */
export async function hungServer(own: Server, urlOf: UrlOf): Promise<void> {
  await using locks = new Holdfast(urlOf(own), { ttl: '4s' });
  const lease: Lease = await locks.mutex('hung').acquire();
  await own.pause();
  await expect(locks.mutex('other').acquire({ timeout: '500ms' })).rejects.toBeInstanceOf(EngineError);
  await until('the lease is lost by the clock', () => !lease.held);
  expect(lease.signal.aborted).toBe(true);
  own.resume();
  await (await locks.mutex('hung').acquire()).release();
}

interface CrowdSize {
  readonly sessions: number;
  readonly waiters: number;
  readonly releases: number;
}

export const FEW_WAITERS: CrowdSize = { sessions: 8, waiters: 7, releases: 5 };
export const THOUSAND_WAITERS: CrowdSize = { sessions: 10, waiters: 1_000, releases: 100 };
const AT_ONCE = 91;

/** @param eventsTold the servers' own count of what they told to watchers. */
export async function crowdOfWaiters(
  engine: Engine,
  eventsTold: () => Promise<number>,
  { sessions: count, waiters, releases }: CrowdSize,
): Promise<void> {
  const granted = new Map<string, bigint>();
  const sessions = await Promise.all(
    Array.from({ length: count }, (_, at) =>
      engine.open(
        { id: `${at}`, realm: '', ttlMs: 120_000, label: 'crowd' },
        { granted: (id, token) => void granted.set(id, token), lost: () => {}, ended: () => {}, hinted: () => {} },
      ),
    ),
  );
  const line = { kind: 'lock', name: 'crowd' } as const;
  const sessionOf = (serial: number): Session => sessions[serial % count]!;
  const enter = (serial: number): Promise<unknown> =>
    sessionOf(serial).enter({
      ...{ id: `claim-${serial}`, line, serial, wait: true, note: '{}' },
      ...{ weight: ALL, capacity: ALL },
    });
  for (let from = 0; from <= waiters; from += AT_ONCE) {
    const batch = Array.from({ length: Math.min(AT_ONCE, waiters + 1 - from) }, (_, at) => from + at);
    await Promise.all(batch.map(enter));
  }
  // Who enters at once with others stands wherever the servers put it: only the line itself knows the order.
  const order: string[] = [];
  for await (const { claims } of engine.inspect!({ name: 'crowd' })) order.push(...claims.map(({ id }) => id));
  expect(order).toHaveLength(waiters + 1);
  const before = await eventsTold();
  for (let at = 0; at < releases; at += 1) {
    const id = order[at]!;
    await sessionOf(Number(id.slice('claim-'.length))).leave({ id, line });
    await until('the next is granted', () => granted.has(order[at + 1]!));
  }
  expect(granted.size).toBe(releases);
  expect((await eventsTold()) - before).toBe(releases);
  await Promise.all(sessions.map((session) => session.close()));
}
