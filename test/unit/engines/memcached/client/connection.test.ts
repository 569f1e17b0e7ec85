/** A connection to somebody who answers anything, or nothing: every call is settled, and nothing is thrown elsewhere. */
import { once } from 'node:events';
import { type AddressInfo, createServer, type Server, type Socket } from 'node:net';
import * as fc from 'fast-check';
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { type Clock, systemClock } from '../../../../../src/core/clock.js';
import { EngineError } from '../../../../../src/core/errors.js';
import { Connection } from '../../../../../src/engines/memcached/client/connection.js';
import { MemcachedSlots } from '../../../../../src/engines/memcached/protocol.js';

/** Silence is noticed after 10 ms where it is what comes, and after 20 s where an answer is: the machine may be busy. */
const HURRY = 200;
const PATIENCE = 0.1;
let speed = PATIENCE;
const HURRIED: Clock = { ...systemClock, timer: (ms, run) => setTimeout(run, ms / speed) };

const CLAIM = {
  id: 'claim-1',
  line: { kind: 'lock', name: 'job' },
  serial: 1,
  weight: 1,
  capacity: 1,
  wait: true,
  note: '',
} as const;

let answers: (socket: Socket, request: string) => void = () => {};
let server: Server;

beforeAll(async () => {
  server = createServer((socket) => {
    socket.on('error', () => {});
    socket.on('data', (bytes) => answers(socket, bytes.toString('latin1')));
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
});

afterAll(() => server.close());

beforeEach(() => {
  speed = PATIENCE;
});

function connected(user?: string): Connection & Disposable {
  const { port } = server.address() as AddressInfo;
  const address = { host: '127.0.0.1', port };
  const connection = new Connection({ server: address, user, password: user && 'secret', clock: HURRIED });
  return Object.assign(connection, { [Symbol.dispose]: () => connection.close() });
}

const settled = (calls: readonly Promise<unknown>[]): Promise<unknown[]> =>
  Promise.all(calls.map((call) => call.then(() => 'answered').catch((error: unknown) => error)));

const piece = fc.oneof(
  fc.uint8Array({ maxLength: 60 }).map((bytes) => Buffer.from(bytes).toString('latin1')),
  fc.constantFrom(
    'HD c1\r\n',
    'HD\r\n',
    'VA 3\r\nabc\r\n',
    'VA 3 c1\r\nab',
    'VA 9999999\r\n',
    'VA 1048576\r\nx',
    'ERROR\r\n',
  ),
  fc.constantFrom(
    'NS\r\n',
    'EN\r\n',
    'CLIENT_ERROR no\r\n',
    'SERVER_ERROR oops\r\n',
    '\r\n',
    `${'x'.repeat(3_000)}\r\n`,
  ),
);

describe('whatever is answered', () => {
  test('every call is settled, by its answer or an EngineError, and the next connection serves', async () => {
    await fc.assert(
      fc.asyncProperty(fc.array(piece, { maxLength: 6 }), fc.boolean(), async (pieces, ends) => {
        speed = HURRY;
        using connection = connected();
        answers = (socket) => {
          for (const bytes of pieces) socket.write(bytes, 'latin1');
          if (ends) socket.end();
        };
        const calls = ['mn', 'mg key v', 'mg key c'].map((command) => connection.call(command));
        for (const result of await settled(calls))
          if (result !== 'answered') expect(result).toBeInstanceOf(EngineError);
        answers = (socket, request) => void socket.write('MN\r\n'.repeat(request.split('\n').length - 1));
        // One that is still open may have an answer too many: then it breaks, and the one after it serves.
        const next = (): Promise<string> =>
          connection.call('mn').then(
            ({ code }) => code,
            () => 'broken',
          );
        const codes = [await next(), await next()];
        speed = PATIENCE;
        codes.push(await next());
        expect(codes).toContain('MN');
      }),
      { numRuns: 40 },
    );
  });

  test('a lock is taken, kept and dropped, or not, or it is unknown', async () => {
    await fc.assert(
      fc.asyncProperty(fc.array(piece, { minLength: 1, maxLength: 6 }), async (pieces) => {
        speed = HURRY;
        using connection = connected();
        let at = 0;
        answers = (socket) => void socket.write(pieces[(at += 1) % pieces.length]!, 'latin1');
        const slots = new MemcachedSlots({ connection, namespace: 'holdfast', clock: HURRIED, ttlMs: 3_000 });
        const calls = [slots.take(CLAIM), slots.keep([{ ...CLAIM, token: 1n }]), slots.drop(CLAIM)];
        for (const result of await settled(calls))
          if (result !== 'answered') expect(result).toBeInstanceOf(EngineError);
      }),
      { numRuns: 40 },
    );
  });
});

describe('an error', () => {
  test.each([
    ['ERROR', false, '1.6 or newer'],
    ['ERROR Too many open connections', true, 'Too many'],
    ['SERVER_ERROR out of memory storing object', true, 'out of memory'],
    ['CLIENT_ERROR unauthenticated', false, 'unauthenticated'],
  ])('%s: trying again may help: %s', async (line, retryable, text) => {
    using connection = connected();
    answers = (socket) => void socket.write(`${line}\r\n`);
    const error = await connection.call('mn').catch((caught: unknown) => caught);
    expect(error).toMatchObject({
      code: 'HOLDFAST_ENGINE',
      retryable,
      message: expect.stringContaining(text) as string,
    });
  });

  test('of one call leaves the others on its connection unknown', async () => {
    using connection = connected();
    answers = (socket) => void socket.write('CLIENT_ERROR bad\r\nMN\r\n');
    const [first, second] = await settled([connection.call('mn'), connection.call('mn')]);
    expect(first).toMatchObject({ retryable: false });
    expect(second).toMatchObject({ retryable: true });
  });

  test('of the login is that of every call', async () => {
    using connection = connected('me');
    answers = (socket) => void socket.write('CLIENT_ERROR authentication failure\r\n');
    const error = { retryable: false, message: expect.stringMatching(/refuses the user/) as string };
    expect(await settled([connection.call('mn'), connection.call('mn')])).toMatchObject([error, error]);
  });
});

test('what was heard on a connection is not said on another', async () => {
  using connection = connected();
  answers = (socket, request) => void (request.startsWith('quit') ? socket.destroy() : socket.write('MN\r\n'));
  const { link } = connection;
  expect(await connection.call('mn', { on: link })).toMatchObject({ code: 'MN' });
  await settled([connection.call('quit')]);
  expect(connection.link).not.toBe(link);
  expect(await settled([connection.call('mn', { on: link })])).toMatchObject([{ retryable: true }]);
});

test('nothing is opened after the end', async () => {
  using connection = connected();
  connection.close();
  expect(connection.link).toBe(0);
  expect(await settled([connection.call('mn')])).toMatchObject([{ code: 'HOLDFAST_ENGINE' }]);
});
