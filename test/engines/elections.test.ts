/** Elections through an outage of a real server that lasts for longer than any ttl. */
import { subscribe, unsubscribe } from 'node:diagnostics_channel';
import { expect, test } from 'vitest';
import { Holdfast } from '../../src/index.js';
import { startEtcd } from '../servers/etcd.js';
import { startMariadb } from '../servers/mariadb.js';
import { startPostgres } from '../servers/postgres.js';
import { startRedis } from '../servers/redis.js';
import type { Server } from '../servers/server.js';
import { eventually } from '../servers/wait.js';
import { startZooKeeper } from '../servers/zookeeper.js';

type UrlOf = (server: Server) => string;

const SERVERS: readonly (readonly [string, () => Promise<Server>, UrlOf])[] = [
  ['redis', () => startRedis(), ({ port }) => `redis://127.0.0.1:${port}`],
  ['postgres', () => startPostgres(), ({ port }) => `postgres://postgres@127.0.0.1:${port}/postgres`],
  ['mysql', () => startMariadb(), ({ port }) => `mysql://root@127.0.0.1:${port}/test`],
  ['etcd', () => startEtcd(), ({ port }) => `etcd://127.0.0.1:${port}`],
  ['zookeeper', () => startZooKeeper(), ({ port }) => `zookeeper://127.0.0.1:${port}`],
];

test.each(SERVERS)('%s: both candidates and an observer go on after it', async (_name, start, urlOf) => {
  const server = await start();
  const stop = new AbortController();
  const fleet = ['one', 'two', 'observer'].map(() => new Holdfast(urlOf(server), { ttl: '3s' }));
  const [one, two, observer] = fleet;
  const terms: string[] = [];
  const seen: (string | undefined)[] = [];
  const working = [one!, two!].map((locks, at) =>
    locks.election('e').lead({ value: `${at}`, signal: stop.signal }, async ({ signal }) => {
      terms.push(`${at}`);
      await new Promise<void>((resolve) => {
        for (const each of [signal, stop.signal])
          if (each.aborted) resolve();
          else each.addEventListener('abort', () => resolve(), { once: true });
      });
    }),
  );
  const observe = async (signal: AbortSignal): Promise<void> => {
    for await (const leader of observer!.election('e').observe({ signal })) seen.push(leader?.value);
  };
  const enough = new AbortController();
  const observing = observe(enough.signal);
  const failed = Promise.race(working).then(
    () => 'ended',
    (error: unknown) => error,
  );
  await eventually('one of them is seen to lead', async () => expect(seen.at(-1)).toBe(terms[0] ?? 'nobody'));
  const led = terms.length;
  await server.kill();
  await eventually('nobody is known to lead', async () => expect(seen.at(-1)).toBeUndefined());
  enough.abort();
  await observing;
  // Nobody observes any more, so it is both candidates that tell of it.
  let outages = 0;
  const tell = (): void => void (outages += 1);
  subscribe('holdfast:outage', tell);
  await eventually('both have met the outage', async () => expect(outages).toBeGreaterThan(3));
  unsubscribe('holdfast:outage', tell);
  await server.start();
  const observingAgain = observe(stop.signal);
  await eventually('one of them leads again', async () => {
    expect(terms.length).toBeGreaterThan(led);
    expect(seen.at(-1)).toBe(terms.at(-1));
  });
  const state = await Promise.race([failed, Promise.resolve('both go on')]);
  expect(state).toBe('both go on');
  stop.abort('done');
  await Promise.allSettled([...working, observingAgain]);
  await Promise.all(fleet.map((locks) => locks.close()));
  await server.stop();
});
