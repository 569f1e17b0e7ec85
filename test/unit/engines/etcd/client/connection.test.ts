/** A server that says anything at all: every call ends in time, with an answer or an error of ours. */
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { createServer, type Http2Server, type ServerHttp2Stream } from 'node:http2';
import { createServer as createTcpServer } from 'node:net';
import * as fc from 'fast-check';
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import { EtcdClient } from '../../../../../src/engines/etcd/client/client.js';
import { frame } from '../../../../../src/engines/etcd/client/frames.js';
import { RangeResponse } from '../../../../../src/engines/etcd/client/messages.js';
import { EtcdError, STATUS } from '../../../../../src/engines/etcd/client/status.js';
import { LOOPBACK } from '../../../../servers/ports.js';
import { holdTime, releaseTime } from '../../lapse.js';

type Behaviour = (stream: ServerHttp2Stream) => void;

/** Answers as it is told. */
class Liar implements AsyncDisposable {
  readonly #server: Http2Server;
  readonly #streams = new Set<ServerHttp2Stream>();
  behaviour: Behaviour = (stream) => stream.end();

  private constructor(server: Http2Server) {
    this.#server = server;
    server.on('stream', (stream) => {
      this.#streams.add(stream);
      stream.on('error', () => {});
      this.behaviour(stream);
    });
  }

  static async start(): Promise<Liar> {
    const server = createServer();
    server.listen(0, LOOPBACK);
    await once(server, 'listening');
    return new Liar(server);
  }

  get port(): number {
    return (this.#server.address() as { port: number }).port;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const stream of this.#streams) stream.session?.destroy();
    this.#server.close();
    await once(this.#server, 'close');
  }
}

function clientOf(...ports: readonly number[]): EtcdClient & Disposable {
  const members = ports.map((port) => ({ host: LOOPBACK, port }));
  const client = new EtcdClient({ members, random: () => 0 });
  return Object.assign(client, { [Symbol.dispose]: () => client.close() });
}

const KEY = { key: Buffer.from('a') };

function answering(bytes: Buffer, status: string): Behaviour {
  return (stream) => {
    stream.respond({ ':status': 200, 'content-type': 'application/grpc' }, { waitForTrailers: true });
    stream.on('wantTrailers', () => stream.sendTrailers({ 'grpc-status': status }));
    stream.end(bytes);
  };
}

test('whatever bytes come, a call ends in time, and the client serves on', async () => {
  await using liar = await Liar.start();
  using client = clientOf(liar.port);
  const good = frame(RangeResponse.encode({ header: { revision: 7n } }));
  const noise = fc.oneof(
    fc.uint8Array({ maxLength: 300 }).map((bytes) => Buffer.from(bytes)),
    fc.tuple(fc.nat(good.length - 1), fc.nat(255)).map(([at, byte]) => {
      const broken = Buffer.from(good);
      broken[at] = byte;
      return broken;
    }),
    fc.nat(good.length).map((length) => good.subarray(0, length)),
  );
  await fc.assert(
    fc.asyncProperty(noise, fc.constantFrom('0', '14', '999', 'x'), async (bytes, status) => {
      liar.behaviour = answering(bytes, status);
      const outcome = await client.range(KEY, { withinMs: 20_000, rounds: 1 }).catch((error: unknown) => error);
      if (outcome instanceof Error) expect(outcome).toBeInstanceOf(EtcdError);
      // Whatever it was, it was an answer, and is not waited for any longer.
      expect(outcome).not.toMatchObject({ status: STATUS.deadlineExceeded });
    }),
    { numRuns: 40 },
  );
  liar.behaviour = answering(good, '0');
  expect((await client.range(KEY, { withinMs: 20_000 })).header?.revision).toBe(7n);
});

test('a watch that hears nonsense goes on with a new stream', async () => {
  await using liar = await Liar.start();
  using client = clientOf(liar.port);
  let streams = 0;
  liar.behaviour = (stream) => {
    streams += 1;
    stream.respond({ ':status': 200, 'content-type': 'application/grpc' });
    stream.write(Buffer.concat([Buffer.from([0, 0, 0, 0, 40]), randomBytes(40).fill(0xff)]));
  };
  const heard = client.watches.watch({ ...KEY, from: 1n }, { changed: () => {}, gap: () => {} });
  await expect.poll(() => streams, { timeout: 40_000 }).toBeGreaterThan(2);
  heard.close();
});

test('a server that speaks another protocol, or none, is an error in time', async () => {
  const server = createTcpServer((socket) => {
    socket.on('error', () => {});
    socket.write('HTTP/1.1 400 Bad Request\r\n\r\n');
  });
  server.listen(0, LOOPBACK);
  await once(server, 'listening');
  using client = clientOf((server.address() as { port: number }).port);
  await expect(client.range(KEY, { withinMs: 400 })).rejects.toBeInstanceOf(EtcdError);
  server.close();
});

async function silentAndHonest(): Promise<AsyncDisposable & { asked: Promise<void>; client: EtcdClient }> {
  const silent = await Liar.start();
  const honest = await Liar.start();
  const asked = new Promise<void>((resolve) => {
    silent.behaviour = () => resolve();
  });
  honest.behaviour = answering(frame(RangeResponse.encode({ header: { revision: 1n } })), '0');
  const client = clientOf(silent.port, honest.port);
  const end = async (): Promise<void> => {
    client.close();
    await silent[Symbol.asyncDispose]();
    await honest[Symbol.asyncDispose]();
  };
  return { asked, client, [Symbol.asyncDispose]: end };
}

describe('a member that is silent', () => {
  /** Nothing comes but what the test lets come, so time may as well be the test's. */
  beforeEach(holdTime);

  afterEach(() => {
    releaseTime();
  });

  test('is left in time for one that answers', async () => {
    await using world = await silentAndHonest();
    const answer = world.client.range(KEY, { withinMs: 9_000 });
    await world.asked;
    vi.advanceTimersByTime(1_000);
    expect((await answer).header?.revision).toBe(1n);
  });

  test('is not left with what may not be repeated: that may have been carried out', async () => {
    await using world = await silentAndHonest();
    const outcome = world.client.txn({}, { withinMs: 2_000, repeatable: false }).catch((error: unknown) => error);
    await world.asked;
    vi.advanceTimersByTime(2_000);
    expect(await outcome).toMatchObject({ status: STATUS.deadlineExceeded, sent: true });
  });
});

test('a member that is not there was never asked: even what may not be repeated goes to the next', async () => {
  await using liar = await Liar.start();
  const gone = await Liar.start();
  const { port } = gone;
  await gone[Symbol.asyncDispose]();
  liar.behaviour = answering(frame(RangeResponse.encode({ header: { revision: 3n } })), '0');
  using client = clientOf(port, liar.port);
  const { header } = await client.txn({}, { withinMs: 20_000, repeatable: false });
  expect(header?.revision).toBe(3n);
});
