/** A ZooKeeper that answers what it likes: it costs an error and a bounded amount of memory, and nothing goes on afterwards. */
import { once } from 'node:events';
import { createServer, type Server as Listener, type Socket } from 'node:net';
import { describe, expect, test } from 'vitest';
import { FrameReader } from '../../../src/kit/frame-reader.js';
import { frame, HEAD } from '../../../src/engines/zookeeper/client/frames.js';
import { Writer } from '../../../src/engines/zookeeper/client/jute.js';
import { EVENT, OP, XID } from '../../../src/engines/zookeeper/client/messages.js';
import { CODE } from '../../../src/engines/zookeeper/client/status.js';
import { LOOPBACK } from '../../servers/ports.js';
import { expectHarmless, victimOf } from '../consensus/victim.js';
import { urlOf } from './kit.js';

const MIB = 1024 * 1024;
const SESSION = 0x7eed_f00d_cafe_0001n;

/** What is answered to a request: a code, or a body. */
type Answer = number | ((writer: Writer) => unknown) | Buffer;
type Answers = (op: number, socket: Socket) => Answer;

function stat(writer: Writer): Writer {
  for (let field = 0; field < 4; field += 1) writer.long(9n);
  return writer.int(1).int(2).int(3).long(SESSION).int(0).int(0).long(9n);
}

/** As a server would, that has one client and an empty tree. */
function honest(op: number): Answer {
  if (op === OP.create2) return (writer) => stat(writer.text('/holdfast/lock/a/_c_x-lock-0000000000'));
  if (op === OP.getData) return (writer) => stat(writer.bytes(Buffer.from('[]')));
  if (op === OP.getChildren2) return (writer) => stat(writer.list([], () => {}));
  if (op === OP.getEphemerals) return (writer) => writer.list([], () => {});
  return () => {};
}

/** Claims to have so many entries of two bytes each. */
function listOf(bytes: number): Buffer {
  const entry = Buffer.of(0, 0, 0, 2, 0x61, 0x62);
  const count = Math.floor(bytes / entry.length);
  return Buffer.concat([new Writer().int(count).finish(), Buffer.alloc(count * entry.length, entry)]);
}

class Hostile implements AsyncDisposable {
  readonly #server: Listener;
  readonly #sockets = new Set<Socket>();
  answers: Answers = honest;
  timeoutMs = 3_000;
  requests = 0;

  private constructor() {
    this.#server = createServer((socket) => this.#accept(socket));
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

  #accept(socket: Socket): void {
    const frames = new FrameReader(HEAD);
    let greeted = false;
    this.#sockets.add(socket);
    socket.on('error', () => {});
    socket.on('data', (piece: Buffer) => {
      for (const message of frames.push(piece)) {
        if (greeted) this.#answer(message, socket);
        else socket.write(this.#welcome());
        greeted = true;
      }
    });
  }

  #welcome(): Buffer {
    const writer = new Writer().int(0).int(this.timeoutMs).long(SESSION);
    return frame(writer.bytes(Buffer.alloc(16, 7)).bool(false).finish());
  }

  #answer(message: Buffer, socket: Socket): void {
    this.requests += 1;
    const [xid, op] = [message.readInt32BE(0), message.readInt32BE(4)];
    const answer = this.answers(op, socket);
    const writer = new Writer()
      .int(xid)
      .long(5n)
      .int(typeof answer === 'number' ? answer : 0);
    if (typeof answer === 'function') answer(writer);
    socket.write(frame(Buffer.concat([writer.finish(), ...(Buffer.isBuffer(answer) ? [answer] : [])])));
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const socket of this.#sockets) socket.destroy();
    this.#server.close();
    await once(this.#server, 'close');
  }
}

describe.concurrent('a server that contradicts itself', () => {
  test.each<[string, Answers]>([
    [
      'about a node that is there and not there',
      (op) => {
        if (op === OP.getData) return CODE.noNode;
        return op === OP.create2 || op === OP.createContainer ? CODE.nodeExists : honest(op);
      },
    ],
    [
      'about nodes that are never above another',
      (op) => (op === OP.create2 || op === OP.createContainer || op === OP.getData ? CODE.noNode : honest(op)),
    ],
    [
      'about a line that is gone whenever it was made',
      (op) => {
        if (op === OP.create2) return CODE.noNode;
        return op === OP.createContainer ? CODE.nodeExists : honest(op);
      },
    ],
  ])('%s is an EngineError, and is not asked without end', async (_about, answers) => {
    await using server = await Hostile.start();
    server.answers = answers;
    const victim = await victimOf(urlOf(server), { stayMs: 1_500 });
    expect(victim.outcomes).toEqual(['HOLDFAST_ENGINE']);
    expectHarmless(victim);
    // Each try to open a session costs a few; without a bound there are thousands in every second.
    expect(server.requests).toBeLessThan(2_000);
  });
});

describe.concurrent('an answer of many small parts', () => {
  test.each<[string, Answers]>([
    ['a line', (op) => (op === OP.getChildren2 ? listOf(7.5 * MIB) : honest(op))],
    ['what goes with the session', (op) => (op === OP.getEphemerals ? listOf(7.5 * MIB) : honest(op))],
    [
      'letters',
      (op) => (op === OP.getData ? (writer) => stat(writer.bytes(Buffer.alloc(7 * MIB, '[],'))) : honest(op)),
    ],
  ])('instead of %s costs no more than one', async (_what, answers) => {
    await using server = await Hostile.start();
    server.answers = answers;
    expectHarmless(await victimOf(urlOf(server)));
  });
});

test.concurrent('changes without end are not answered one by one', async () => {
  await using server = await Hostile.start();
  const path = `/holdfast/session/${SESSION.toString(16)}`;
  const event = frame(new Writer().int(XID.event).long(-1n).int(0).int(EVENT.dataChanged).int(3).text(path).finish());
  const flood = Buffer.concat(Array.from({ length: 20_000 }, () => event));
  let floods = 0;
  server.answers = (op, socket) => {
    if (op === OP.getEphemerals && (floods += 1) < 20) socket.write(flood);
    return honest(op);
  };
  expectHarmless(await victimOf(urlOf(server), { stayMs: 2_000 }));
  expect(server.requests).toBeLessThan(20_000);
});

test.concurrent.each([-1, 0, 1, 2 ** 31 - 1])('a session of %i milliseconds is an EngineError', async (timeoutMs) => {
  await using server = await Hostile.start();
  server.timeoutMs = timeoutMs;
  const victim = await victimOf(urlOf(server));
  expect(victim.outcomes).toEqual(['HOLDFAST_ENGINE']);
  expectHarmless(victim);
  expect(server.requests).toBeLessThan(2_000);
});
