/** A connection that is ended in the very moment in which it is used, as a server does with idle ones. */
import { once } from 'node:events';
import { type AddressInfo, connect, createServer } from 'node:net';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { EngineError, Holdfast } from '../../../src/index.js';
import { startRedis } from '../../servers/redis.js';
import type { Server } from '../../servers/server.js';

let server: Server;

beforeAll(async () => {
  server = await startRedis();
});
afterAll(() => server.stop());

/** Before the server; ends the connection of so many scripts, before or after the server has run them. */
async function startEnding(): Promise<AsyncDisposable & { readonly port: number; before: number; after: number }> {
  const listener = createServer((client) => {
    const upstream = connect(server.port, '127.0.0.1');
    let isDoomed = false;
    const end = (): void => void (client.destroy(), upstream.destroy());
    client.on('error', end).on('close', end);
    upstream.on('error', end).on('close', end);
    client.on('data', (request) => {
      if (/evalsha/i.test(request.toString('latin1'))) {
        if (ending.before > 0) {
          ending.before -= 1;
          return end();
        }
        if (ending.after > 0) {
          ending.after -= 1;
          isDoomed = true;
        }
      }
      return void upstream.write(request);
    });
    upstream.on('data', (reply) => void (isDoomed ? end() : client.write(reply)));
  });
  listener.listen(0, '127.0.0.1');
  await once(listener, 'listening');
  const ending = {
    port: (listener.address() as AddressInfo).port,
    before: 0,
    after: 0,
    [Symbol.asyncDispose]: async () => void listener.close(),
  };
  return ending;
}

test.each(['before', 'after'] as const)('what is asked is asked once more: %s the server has done it', async (when) => {
  await using ending = await startEnding();
  await using locks = new Holdfast(`redis://127.0.0.1:${ending.port}?epochGuard=false`, {
    ttl: '60s',
    namespace: when,
  });
  const lease = await locks.mutex('x').acquire();
  const ended = async <T>(ask: () => Promise<T>): Promise<T> => {
    ending[when] = 1;
    const answer = await ask();
    expect(ending[when]).toBe(0);
    return answer;
  };
  const { claims } = await ended(() => locks.mutex('x').inspect());
  expect(claims).toHaveLength(1);
  await ended(() => locks.register('x').set('value', lease));
  expect(await ended(() => locks.register('x').get())).toMatchObject({ value: 'value', token: lease.token });
  expect(await ended(() => locks.mutex('y').tryAcquire())).toBeDefined();
  await ended(() => locks.ready());
  expect(await ended(() => lease.release())).toBe(true);
});

test('if it is ended again, the error says so in our words, and where', async () => {
  await using ending = await startEnding();
  await using locks = new Holdfast(`redis://127.0.0.1:${ending.port}?epochGuard=false`, {
    ttl: '60s',
    namespace: 'often',
  });
  await locks.ready();
  ending.before = 2;
  const refused = await locks
    .mutex('x')
    .inspect()
    .catch((error: unknown) => error);
  expect(refused).toBeInstanceOf(EngineError);
  const { message, retryable } = refused as EngineError;
  expect(message).toContain('The connection was ended before the answer had come');
  expect(message).toContain(`127.0.0.1:${ending.port}`);
  expect(message).not.toContain('max');
  expect(retryable).toBe(true);
});
