/** An etcd that answers what it likes: it costs an error and a bounded amount of memory, and nothing goes on afterwards. */
import { once } from 'node:events';
import { createServer, type Http2Server, type ServerHttp2Stream } from 'node:http2';
import { describe, expect, test } from 'vitest';
import { frame } from '../../../src/engines/etcd/client/frames.js';
import {
  LeaseGrantResponse,
  LeaseKeepAliveResponse,
  LeaseTimeToLiveResponse,
  RangeResponse,
  TxnRequest,
  TxnResponse,
  WatchResponse,
} from '../../../src/engines/etcd/client/messages.js';
import { LOOPBACK } from '../../servers/ports.js';
import { expectHarmless, victimOf } from '../consensus/victim.js';
import { urlOf } from './kit.js';

const MIB = 1024 * 1024;
const HEADER = { revision: 7n, raftTerm: 1n };

/** A message that is nothing but this field, again and again. */
function manyOf(field: number, bytes: number): Buffer {
  return frame(Buffer.alloc(bytes, Buffer.of((field << 3) | 2, 0)));
}

type Answers = Readonly<Record<string, (request: Buffer) => Buffer>>;

/** Whoever enters is alone in its line. */
function entered(request: Buffer): Buffer {
  const { success } = TxnRequest.decode(request.subarray(5));
  const { key = Buffer.alloc(0) } = success[0]?.put ?? {};
  const own = { key, createRevision: HEADER.revision, modRevision: HEADER.revision, lease: 7n };
  return frame(
    TxnResponse.encode({ header: HEADER, succeeded: true, responses: [{ put: {} }, { range: { kvs: [own] } }] }),
  );
}

/** As a server would, that has one client. */
const HONEST: Answers = {
  LeaseGrant: () => frame(LeaseGrantResponse.encode({ header: HEADER, id: 7n, ttl: 3n })),
  LeaseKeepAlive: () => frame(LeaseKeepAliveResponse.encode({ header: HEADER, id: 7n, ttl: 3n })),
  LeaseTimeToLive: () => frame(LeaseTimeToLiveResponse.encode({ header: HEADER, id: 7n, ttl: 3n, grantedTtl: 3n })),
  LeaseRevoke: () => frame(LeaseGrantResponse.encode({ header: HEADER })),
  Range: () => frame(RangeResponse.encode({ header: HEADER })),
  Txn: entered,
};

class Hostile implements AsyncDisposable {
  readonly requests = new Map<string, number>();
  readonly #server: Http2Server;
  readonly #streams = new Set<ServerHttp2Stream>();
  answers: Answers = HONEST;
  watching: (stream: ServerHttp2Stream) => void = () => {};

  private constructor() {
    this.#server = createServer();
    this.#server.on('stream', (stream, headers) => this.#answer(stream, String(headers[':path']).split('/').at(-1)!));
  }

  static async start(): Promise<Hostile> {
    const hostile = new Hostile();
    hostile.#server.listen(0, LOOPBACK);
    await once(hostile.#server, 'listening');
    return hostile;
  }

  get port(): number {
    return (this.#server.address() as { port: number }).port;
  }

  #answer(stream: ServerHttp2Stream, method: string): void {
    this.#streams.add(stream);
    this.requests.set(method, (this.requests.get(method) ?? 0) + 1);
    stream.on('error', () => {});
    stream.respond({ ':status': 200, 'content-type': 'application/grpc' }, { waitForTrailers: true });
    if (method === 'Watch') return this.watching(stream);
    stream.on('wantTrailers', () => stream.sendTrailers({ 'grpc-status': '0' }));
    stream.once('data', (request: Buffer) => stream.end(this.answers[method]?.(request)));
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const stream of this.#streams) stream.session?.destroy();
    this.#server.close();
    await once(this.#server, 'close');
  }
}

describe.concurrent('an answer of many small parts', () => {
  test.each([
    ['a lease', { LeaseGrant: () => manyOf(1, 16 * MIB) }],
    ['the way into a line', { Txn: () => manyOf(3, 16 * MIB) }],
    ['a line that is no longer than it may be', { Txn: () => manyOf(3, 4 * MIB) }],
  ])('instead of %s is an EngineError', async (_what, answers) => {
    await using server = await Hostile.start();
    server.answers = { ...HONEST, ...answers };
    const victim = await victimOf(urlOf(server));
    expect(victim.outcomes).toEqual(['HOLDFAST_ENGINE']);
    expectHarmless(victim);
  });

  test.each([1, 64])(
    'to each question of a beat costs the lock, and no more (%i times what it may be)',
    async (times) => {
      await using server = await Hostile.start();
      server.answers = {
        ...HONEST,
        Range: () => manyOf(2, (times * MIB) / 4),
        LeaseTimeToLive: () => manyOf(5, times * MIB),
      };
      const victim = await victimOf(urlOf(server));
      expect(victim.outcomes).toEqual(['held']);
      expectHarmless(victim);
    },
  );

  test('on a watch ends the stream, and the next is opened after a pause', async () => {
    await using server = await Hostile.start();
    server.watching = (stream) => void stream.write(manyOf(11, 4 * MIB));
    const victim = await victimOf(urlOf(server), { stayMs: 2_000 });
    expectHarmless(victim);
    expect(server.requests.get('Watch')).toBeLessThan(40);
  });
});

test.concurrent('answers without end to one question are an EngineError', async () => {
  await using server = await Hostile.start();
  const many = Buffer.concat(Array.from({ length: 10_000 }, () => HONEST['LeaseGrant']!(Buffer.alloc(0))));
  server.answers = { ...HONEST, LeaseGrant: () => many };
  const victim = await victimOf(urlOf(server));
  expect(victim.outcomes).toEqual(['HOLDFAST_ENGINE']);
  expectHarmless(victim);
});

describe.concurrent('a lease', () => {
  test.each([0n, -9n, 2n ** 62n])('of %s seconds is an EngineError', async (ttl) => {
    await using server = await Hostile.start();
    server.answers = {
      ...HONEST,
      LeaseGrant: () => frame(LeaseGrantResponse.encode({ header: HEADER, id: 7n, ttl })),
    };
    const victim = await victimOf(urlOf(server));
    expect(victim.outcomes).toEqual(['HOLDFAST_ENGINE']);
    expectHarmless(victim);
  });

  test('that is longer than was asked for is kept as if it were not', async () => {
    await using server = await Hostile.start();
    server.answers = {
      ...HONEST,
      LeaseGrant: () => frame(LeaseGrantResponse.encode({ header: HEADER, id: 7n, ttl: 8_000_000n })),
    };
    const victim = await victimOf(urlOf(server), { stayMs: 2_500 });
    expectHarmless(victim);
    // Two or three in that time, with a ttl of three seconds; none with one of months, hundreds with a timer that overflows.
    expect(server.requests.get('LeaseKeepAlive')).toBeGreaterThan(0);
    expect(server.requests.get('LeaseKeepAlive')).toBeLessThan(20);
  });
});

test.concurrent('history that is always gone is not asked for without end', async () => {
  await using server = await Hostile.start();
  server.watching = (stream) => {
    let watches = 0n;
    stream.on('data', () => {
      watches += 1n;
      stream.write(frame(WatchResponse.encode({ watchId: watches, canceled: true, compactRevision: 3n })));
    });
  };
  const victim = await victimOf(urlOf(server), { stayMs: 2_000 });
  expectHarmless(victim);
  expect(server.requests.get('Range') ?? 0).toBeLessThan(500);
});

test.concurrent(
  'changes without end, each of them about nothing that we know, are not answered one by one',
  async () => {
    await using server = await Hostile.start();
    const events = Array.from({ length: 50_000 }, (_, at) => ({
      type: 0,
      kv: { key: Buffer.from(`holdfast/inbox/7/${at}`), modRevision: 9n },
    }));
    server.watching = (stream) =>
      void stream.write(frame(WatchResponse.encode({ watchId: 1n, header: HEADER, events })));
    const victim = await victimOf(urlOf(server), { stayMs: 2_000 });
    expectHarmless(victim);
    expect(server.requests.get('Txn') ?? 0).toBeLessThan(500);
  },
);

test.concurrent('a line in which others are always quicker is given up in time', async () => {
  await using server = await Hostile.start();
  server.answers = { ...HONEST, Txn: () => frame(TxnResponse.encode({ header: HEADER, succeeded: false })) };
  const victim = await victimOf(urlOf(server), { stayMs: 2_000 });
  expect(victim.outcomes).toEqual(['HOLDFAST_ENGINE']);
  const asked = server.requests.get('Txn');
  expect(asked).toBeDefined();
  expectHarmless(victim);
});
