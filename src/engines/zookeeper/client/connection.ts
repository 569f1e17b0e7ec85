/**
 * One connection to one server, from the first packet to its end; there is no second life.
 *
 *     greeting ──welcome──> open ──lost, silent, unreadable or closed──> ended
 *
 * Replies come in the order of the requests. A server that hangs breaks no connection by itself, so one that leaves us without
 * any reply for too long is left: what was asked may have been done, and nobody can tell.
 */
import { connect as connectTcp, isIP, type Socket } from 'node:net';
import { connect as connectTls } from 'node:tls';
import { clearTimeout, performance, queueMicrotask, setImmediate, setTimeout } from '../../../core/real-time.js';
import type { Tls } from '../../../kit/certificates.js';
import { FrameReader, WireError } from '../../../kit/frame-reader.js';
import { orStranger } from '../../../kit/stranger.js';
import { frame, headOf, LONGEST_FRAME } from './frames.js';
import { Reader, type Writer } from './jute.js';
import {
  type Hello,
  type NodeEvent,
  OP,
  readEvent,
  readHeader,
  readWelcome,
  type Welcome,
  writeHello,
  writeRequest,
  XID,
} from './messages.js';
import { CODE, ZooKeeperError } from './status.js';

export interface ServerAddress {
  readonly host: string;
  readonly port: number;
  readonly tls?: Tls | undefined;
}

export interface ConnectionOptions {
  readonly server: ServerAddress;
  readonly hello: Hello;
  /** For the greeting, and for each reply after it. */
  readonly silenceMs: number;
}

export interface ConnectionListener {
  /** @param askedAgoMs since the server was asked: what it says is not older than that. */
  welcomed(welcome: Welcome, askedAgoMs: number): void;
  seen(zxid: bigint): void;
  happened(event: NodeEvent): void;
  /** Exactly once, and nothing after it. */
  ended(why: string): void;
  /** The server does not believe who we say to be. */
  refused(): void;
}

/** A session's number and password. */
const LONGEST_GREETING = 1_024;

interface Pending {
  readonly xid: number;
  readonly sentAt: number;
  reply(status: number, body: Reader, zxid: bigint): void;
  fail(error: ZooKeeperError): void;
}

export class Connection {
  readonly #socket: Socket;
  readonly #listener: ConnectionListener;
  readonly #frames = new FrameReader(headOf(() => (this.#state === 'greeting' ? LONGEST_GREETING : LONGEST_FRAME)));
  readonly #pending: Pending[] = [];
  readonly #silenceMs: number;
  #state: 'greeting' | 'open' | 'ended' = 'greeting';
  #greetedAt = 0;
  #lastXid = 0;
  #repliedAt = 0;
  #pingedAt: number | undefined;
  #watchdog: NodeJS.Timeout | undefined;
  /** What goes out together at the end of this turn of the event loop. */
  #outgoing: Buffer[] = [];

  constructor({ server, hello, silenceMs }: ConnectionOptions, listener: ConnectionListener) {
    this.#silenceMs = silenceMs;
    this.#listener = listener;
    this.#socket = dial(server);
    this.#greetedAt = performance.now();
    this.#socket.once(server.tls ? 'secureConnect' : 'connect', () => {
      this.#greetedAt = performance.now();
      this.#socket.write(frame(writeHello(hello)));
    });
    this.#socket.on('data', (piece: Buffer) => this.#heard(piece));
    this.#socket.on('error', (error: NodeJS.ErrnoException) => this.end(reasonOf(error)));
    this.#socket.on('close', () => this.end('the server closed the connection'));
    this.#watch(silenceMs);
  }

  /** What `read` throws is the answer's, unless it can't be read. */
  request<T>(
    op: number,
    write: ((writer: Writer) => unknown) | undefined,
    read: (body: Reader, zxid: bigint) => T,
  ): Promise<T> {
    return new Promise((resolve, reject) => {
      this.#lastXid = this.#lastXid === 0x7fff_ffff ? 1 : this.#lastXid + 1;
      const xid = this.#lastXid;
      this.#pending.push({
        xid,
        sentAt: performance.now(),
        reply: (status, body, zxid) => {
          if (status !== CODE.ok) return reject(new ZooKeeperError(status));
          try {
            resolve(read(body, zxid));
          } catch (error) {
            if (error instanceof WireError) throw error;
            reject(error instanceof Error ? error : new Error(String(error)));
          }
        },
        fail: reject,
      });
      if (this.#state === 'ended') return this.#failAll('it has ended');
      if (this.#pending.length === 1) this.#busy();
      this.send(writeRequest(xid, op, write));
    });
  }

  /** Without a number that is counted, and without a reply that anybody waits for. */
  send(message: Buffer): void {
    if (this.#outgoing.length === 0) queueMicrotask(() => this.#flush());
    this.#outgoing.push(frame(message));
  }

  ping(): void {
    if (this.#pingedAt !== undefined) return;
    this.#pingedAt = performance.now();
    this.send(writeRequest(XID.ping, OP.ping));
    if (!this.#watchdog) this.#watch(this.#silenceMs);
  }

  end(reason: string): void {
    if (this.#state === 'ended') return;
    const isStranger = this.#state === 'greeting' && this.#socket.bytesWritten > 0;
    const why = isStranger ? `${reason}. ${orStranger('ZooKeeper')}` : reason;
    this.#state = 'ended';
    clearTimeout(this.#watchdog);
    this.#socket.destroy();
    this.#failAll(why);
    this.#listener.ended(why);
  }

  #failAll(detail: string): void {
    for (const pending of this.#pending.splice(0)) pending.fail(new ZooKeeperError(CODE.connectionLoss, { detail }));
  }

  #flush(): void {
    const outgoing = this.#outgoing;
    this.#outgoing = [];
    if (this.#state !== 'ended') this.#socket.write(outgoing.length === 1 ? outgoing[0]! : Buffer.concat(outgoing));
  }

  // --- what is heard --------------------------------------------------------------------------------------------

  /** Whatever it is, it does not get past this connection. */
  #heard(piece: Buffer): void {
    try {
      for (const message of this.#frames.push(piece)) {
        if (this.#state === 'greeting') this.#welcomed(message);
        else if (this.#state === 'open') this.#replied(new Reader(message));
      }
    } catch (error) {
      if (!(error instanceof WireError)) throw error;
      this.end(`what the server says can’t be read: ${error.message}`);
    }
  }

  #welcomed(message: Buffer): void {
    const welcome = readWelcome(message);
    this.#state = 'open';
    this.#repliedAt = performance.now();
    clearTimeout(this.#watchdog);
    this.#watchdog = undefined;
    this.#socket.unref();
    this.#listener.welcomed(welcome, this.#repliedAt - this.#greetedAt);
  }

  #replied(reader: Reader): void {
    const { xid, zxid, status } = readHeader(reader);
    if (xid === XID.event) return this.#listener.happened(readEvent(reader));
    if (zxid > 0n) this.#listener.seen(zxid);
    if (xid === XID.ping) this.#pingedAt = undefined;
    if (xid === XID.auth && status !== CODE.ok) this.#listener.refused();
    if (xid < 0) return;
    const pending = this.#pending[0];
    if (pending?.xid !== xid) throw new WireError('a reply to nothing that was asked');
    this.#pending.shift();
    this.#repliedAt = performance.now();
    if (this.#pending.length === 0) this.#socket.unref();
    try {
      pending.reply(status, reader, zxid);
    } catch (error) {
      pending.fail(new ZooKeeperError(CODE.connectionLoss, { detail: 'an answer that can’t be read' }));
      throw error;
    }
    if (status === CODE.sessionMoved) this.end('the session has moved to another server');
  }

  // --- silence --------------------------------------------------------------------------------------------------

  /** A question keeps the process alive until it is answered; a connection alone does not. */
  #busy(): void {
    this.#socket.ref();
    if (!this.#watchdog) this.#watch(this.#silenceMs);
  }

  #watch(ms: number): void {
    this.#watchdog = setTimeout(() => {
      // If we ourselves did not run for a while, answers may have come that were not read yet: they are, before this runs.
      setImmediate(() => this.#look());
    }, ms).unref();
  }

  #look(): void {
    if (this.#state === 'ended') return;
    this.#watchdog = undefined;
    const since = this.#unansweredSince();
    if (since === undefined) return;
    const leftMs = since + this.#silenceMs - performance.now();
    if (leftMs > 0) this.#watch(leftMs);
    else this.end(`no answer within ${Math.round(this.#silenceMs)} ms`);
  }

  /** Since when something was asked and nothing answered. */
  #unansweredSince(): number | undefined {
    if (this.#state === 'greeting') return this.#greetedAt;
    const askedAt = Math.min(
      this.#pending[0]?.sentAt ?? Number.POSITIVE_INFINITY,
      this.#pingedAt ?? Number.POSITIVE_INFINITY,
    );
    return askedAt === Number.POSITIVE_INFINITY ? undefined : Math.max(askedAt, this.#repliedAt);
  }
}

/** What OpenSSL has to say of its own is lines of its sources; Node.js has a word for it. */
function reasonOf({ message, code }: NodeJS.ErrnoException): string {
  return message.includes(':error:') && code !== undefined ? code : message;
}

function dial({ host, port, tls }: ServerAddress): Socket {
  if (!tls) return connectTcp({ host, port, noDelay: true });
  // An address is no name that a server could be asked for.
  const servername = isIP(host) ? {} : { servername: host };
  return connectTls({ host, port, ...tls, ...servername });
}
