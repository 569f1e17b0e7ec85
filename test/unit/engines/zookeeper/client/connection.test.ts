/** A server that says anything at all: every call ends in time, with an answer or an error of ours. */
import { once } from 'node:events';
import { createServer, type Server as Listener, type Socket } from 'node:net';
import * as fc from 'fast-check';
import { afterEach, expect, test } from 'vitest';
import { FrameReader } from '../../../../../src/kit/frame-reader.js';
import { ZooKeeperClient } from '../../../../../src/engines/zookeeper/client/client.js';
import { frame, HEAD } from '../../../../../src/engines/zookeeper/client/frames.js';
import { Writer } from '../../../../../src/engines/zookeeper/client/jute.js';
import { CODE, ZooKeeperError } from '../../../../../src/engines/zookeeper/client/status.js';
import { LOOPBACK } from '../../../../servers/ports.js';
import { holdTime, lapse, releaseTime } from '../../lapse.js';

const SESSION = 0x7eed_f00d_cafe_0001n;

/** What a server greets with, and for how long the session lives: what can't be sent waits for a third of that. */
function welcome(timeoutMs: number): Buffer {
  return frame(new Writer().int(0).int(timeoutMs).long(SESSION).bytes(Buffer.alloc(16, 7)).bool(false).finish());
}

const WELCOME = welcome(4_000);

afterEach(() => {
  releaseTime();
});

/** Greets as a server does, unless told otherwise, and answers each request as it is told. */
class Liar implements AsyncDisposable {
  readonly #server: Listener;
  readonly #sockets = new Set<Socket>();
  greeting: Buffer | undefined = WELCOME;
  answer: (xid: number, socket: Socket) => void = () => {};
  connections = 0;

  private constructor(server: Listener) {
    this.#server = server;
    server.on('connection', (socket) => this.#accept(socket));
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

  #accept(socket: Socket): void {
    const frames = new FrameReader(HEAD);
    let greeted = false;
    this.connections += 1;
    this.#sockets.add(socket);
    socket.on('error', () => {});
    socket.on('data', (piece: Buffer) => {
      for (const message of frames.push(piece)) {
        if (greeted) this.answer(message.readInt32BE(0), socket);
        else if (this.greeting) socket.write(this.greeting);
        greeted = true;
      }
    });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const socket of this.#sockets) socket.destroy();
    this.#server.close();
    await once(this.#server, 'close');
  }
}

function clientOf(...ports: readonly number[]): ZooKeeperClient & AsyncDisposable {
  return clientWith({ timeoutMs: 3_000 }, ...ports);
}

function clientWith({ timeoutMs }: { timeoutMs: number }, ...ports: readonly number[]): ReturnType<typeof clientOf> {
  const servers = ports.map((port) => ({ host: LOOPBACK, port }));
  const client = new ZooKeeperClient({ servers, timeoutMs, random: () => 0 });
  return Object.assign(client, { [Symbol.asyncDispose]: () => client.close() });
}

/** A reply to `exists`: a header and eleven numbers. */
function reply(xid: number): Buffer {
  const writer = new Writer().int(xid).long(5n).int(0);
  for (let field = 0; field < 4; field += 1) writer.long(9n);
  return frame(writer.int(1).int(2).int(3).long(0n).int(0).int(0).long(9n).finish());
}

test('whatever bytes come, a call ends in time, and the client serves on', async () => {
  await using liar = await Liar.start();
  await using client = clientOf(liar.port);
  await client.open(30_000);
  holdTime();
  const good = reply(1);
  const noise = fc.oneof(
    fc.uint8Array({ minLength: 1, maxLength: 300 }).map((bytes) => Buffer.from(bytes)),
    fc.tuple(fc.nat(good.length - 1), fc.nat(255)).map(([at, byte]) => {
      const broken = Buffer.from(good);
      broken[at] = byte;
      return broken;
    }),
    fc.nat(good.length).map((length) => good.subarray(0, length)),
  );
  await fc.assert(
    fc.asyncProperty(noise, fc.boolean(), async (bytes, hangUp) => {
      liar.answer = (_xid, socket) => void (hangUp ? socket.end(bytes) : socket.write(bytes));
      const outcome = await lapse(client.exists('/a')).catch((error: unknown) => error);
      if (outcome instanceof Error) expect(outcome).toBeInstanceOf(ZooKeeperError);
    }),
    { numRuns: 30 },
  );
  liar.answer = (xid, socket) => void socket.write(reply(xid));
  // The connection may have heard half an answer before.
  await lapse(client.exists('/a')).catch(() => {});
  expect(await lapse(client.exists('/a'))).toMatchObject({ czxid: 9n });
  expect(client.sessionId).toBe(SESSION);
});

test('whatever a server greets with, it gets no further, and the next is asked', async () => {
  await using liar = await Liar.start();
  await using honest = await Liar.start();
  // It is asked for nothing but the end of the session.
  honest.answer = (xid, socket) => void socket.write(frame(new Writer().int(xid).long(5n).int(0).finish()));
  holdTime();
  const greetings = fc.oneof(
    fc.uint8Array({ minLength: 1, maxLength: 60 }).map((bytes) => Buffer.from(bytes)),
    fc.nat(WELCOME.length - 1).map((length) => WELCOME.subarray(0, length)),
    fc.constant(Buffer.from('HTTP/1.1 400 Bad Request\r\n\r\n')),
  );
  await fc.assert(
    fc.asyncProperty(greetings, async (greeting) => {
      liar.greeting = greeting;
      const client = clientOf(liar.port, honest.port);
      // What looks like a session that has expired is one: it is told, and that is all.
      await lapse(client.open(30_000)).catch((error: unknown) =>
        expect(error).toMatchObject({ status: CODE.sessionExpired }),
      );
      await lapse(client.close());
    }),
    { numRuns: 20 },
  );
});

test('a server that hangs is left in time for one that answers, in the same session', async () => {
  await using hung = await Liar.start();
  await using liar = await Liar.start();
  liar.answer = (xid, socket) => void socket.write(reply(xid));
  hung.greeting = welcome(24_000);
  liar.greeting = welcome(24_000);
  await using client = clientOf(hung.port, liar.port);
  await client.open(30_000);
  expect(hung.connections).toBe(1);
  await expect(client.exists('/a')).rejects.toMatchObject({ status: CODE.connectionLoss, sent: true });
  expect(await client.exists('/a')).toMatchObject({ czxid: 9n });
  expect(client.sessionId).toBe(SESSION);
});

test('what could never be sent says so', async () => {
  const gone = await Liar.start();
  const { port } = gone;
  await gone[Symbol.asyncDispose]();
  // What can’t be sent is told after a third of that.
  await using client = clientWith({ timeoutMs: 300 }, port);
  await expect(client.open(300)).rejects.toMatchObject({ status: CODE.connectionLoss, sent: false });
  await expect(client.exists('/a')).rejects.toMatchObject({ sent: false });
});

test('a session that would end sooner on the server that takes us back is expired', async () => {
  await using liar = await Liar.start();
  let told = false;
  liar.greeting = welcome(24_000);
  const servers = [{ host: LOOPBACK, port: liar.port }];
  const listener = { expired: () => void (told = true) };
  const client = new ZooKeeperClient({ servers, timeoutMs: 3_000, random: () => 0, listener });
  await client.open(30_000);
  // What was counted on so far is more than this server will keep.
  liar.greeting = welcome(23_999);
  liar.answer = (_xid, socket) => socket.destroy();
  await expect(client.exists('/a')).rejects.toMatchObject({ status: CODE.connectionLoss });
  await expect(client.exists('/a')).rejects.toMatchObject({ status: CODE.sessionExpired });
  expect(told).toBe(true);
  await client.close();
});

test('a session that one server would keep for longer is what it was when the next one would not', async () => {
  await using liar = await Liar.start();
  let told = false;
  const listener = { expired: () => void (told = true) };
  const servers = [{ host: LOOPBACK, port: liar.port }];
  const client = new ZooKeeperClient({ servers, timeoutMs: 3_000, random: () => 0, listener });
  liar.greeting = welcome(3_000);
  await client.open(30_000);
  for (const timeoutMs of [24_000, 3_000]) {
    liar.greeting = welcome(timeoutMs);
    liar.answer = (_xid, socket) => socket.destroy();
    await expect(client.exists('/a')).rejects.toMatchObject({ status: CODE.connectionLoss });
    liar.answer = (xid, socket) => void socket.write(reply(xid));
    expect(await client.exists('/a')).toMatchObject({ czxid: 9n });
    expect(client.timeoutMs).toBe(3_000);
  }
  expect(told).toBe(false);
  await client.close();
});

test('a session that the servers do not know is expired, and not a lost connection', async () => {
  await using liar = await Liar.start();
  let told = false;
  liar.greeting = welcome(24_000);
  const servers = [{ host: LOOPBACK, port: liar.port }];
  const listener = { expired: () => void (told = true) };
  const client = new ZooKeeperClient({ servers, timeoutMs: 3_000, random: () => 0, listener });
  await client.open(30_000);
  liar.greeting = frame(new Writer().int(0).int(0).long(0n).bytes(Buffer.alloc(16)).bool(false).finish());
  liar.answer = (_xid, socket) => socket.destroy();
  await expect(client.exists('/a')).rejects.toMatchObject({ status: CODE.connectionLoss });
  await expect(client.exists('/a')).rejects.toMatchObject({ status: CODE.sessionExpired });
  expect(told).toBe(true);
  await client.close();
});
