/**
 * A connection to one member, on `node:http2`: calls and streams of gRPC. It is made when it is needed, and made anew after
 * it broke. While anything is under way it is pinged: a member that hangs breaks no connection by itself, and everything
 * on it would wait for ever.
 */
import { orStranger } from '../../../kit/stranger.js';
import {
  type ClientHttp2Session,
  type ClientHttp2Stream,
  connect as connectHttp2,
  constants,
  type IncomingHttpHeaders,
  type OutgoingHttpHeaders,
  sensitiveHeaders,
} from 'node:http2';
import { connect as connectTcp, isIP, type Socket } from 'node:net';
import { connect as connectTls } from 'node:tls';
import { clearInterval, clearTimeout, setInterval, setTimeout } from '../../../core/real-time.js';
import type { Tls } from '../../../kit/certificates.js';
import { FrameReader } from '../../../kit/frame-reader.js';
import { frame, headOf } from './frames.js';
import { EtcdError, STATUS } from './status.js';
import { TooMuchError } from './wire.js';

/** How often a busy connection is pinged, and how long an answer may take. Together: how long a hang goes unnoticed. */
const PING_EVERY_MS = 1_000;
const PONG_WITHIN_MS = 1_500;
/** Of all headers of an answer, and of the words among them that say what went wrong. */
const LONGEST_HEADERS = 16_384;
const LONGEST_WORDS = 1_000;

export interface Member {
  readonly host: string;
  readonly port: number;
  readonly tls?: Tls | undefined;
}

export interface Call {
  /** `/etcdserverpb.KV/Txn`. */
  readonly path: string;
  readonly body: Buffer;
  readonly withinMs: number;
  readonly token?: string | undefined;
  /** How long its answer may be. */
  readonly longest: number;
}

export interface StreamOptions {
  readonly path: string;
  readonly token: string | undefined;
  /** How long each of its messages may be. */
  readonly longest: number;
}

export interface StreamListener {
  message(message: Buffer): void;
  /** Exactly once, and nothing after it. */
  ended(error: EtcdError): void;
}

export interface Stream {
  send(message: Buffer): void;
  close(): void;
}

export class Connection {
  readonly #member: Member;
  #session: ClientHttp2Session | undefined;
  /** Of that session. */
  #socket: Socket | undefined;
  #pinger: NodeJS.Timeout | undefined;
  #calls = 0;
  #streams = 0;

  constructor(member: Member) {
    this.#member = member;
  }

  call({ path, body, withinMs, token, longest }: Call): Promise<Buffer> {
    return new Promise((resolve, reject) => {
      const { stream, wasSent } = this.#request(path, token, withinMs);
      const reader = new FrameReader(headOf(longest));
      let message: Buffer | undefined;
      this.#underWay(1, 0);
      const timer = setTimeout(() => {
        settle(new EtcdError(STATUS.deadlineExceeded, `no answer within ${Math.round(withinMs)} ms`, wasSent()));
        stream.close(constants.NGHTTP2_CANCEL);
      }, withinMs);
      const settle = (failure: EtcdError | undefined): void => {
        clearTimeout(timer);
        if (failure) reject(failure);
        else if (message) resolve(message);
        else reject(broken('an answer without a message'));
      };
      listen(stream, wasSent, {
        data: (piece) => {
          for (const each of reader.push(piece)) {
            if (message) throw new TooMuchError('a second answer');
            message = each;
          }
        },
        ended: (failure) => {
          this.#underWay(-1, 0);
          settle(failure);
        },
      });
      stream.end(frame(body));
    });
  }

  /** Both sides send as they like, until one of them ends it. */
  stream({ path, token, longest }: StreamOptions, listener: StreamListener): Stream {
    const { stream, wasSent } = this.#request(path, token);
    const reader = new FrameReader(headOf(longest));
    this.#underWay(0, 1);
    listen(stream, wasSent, {
      data: (piece) => {
        for (const message of reader.push(piece)) listener.message(message);
      },
      ended: (failure) => {
        this.#underWay(0, -1);
        listener.ended(failure ?? new EtcdError(STATUS.ok, 'the stream was ended', true));
      },
    });
    return {
      send: (message) => void stream.write(frame(message)),
      close: () => stream.close(constants.NGHTTP2_CANCEL),
    };
  }

  /** Ends everything on it at once. A later call makes a new one. */
  close(): void {
    if (this.#session && this.#socket) end(this.#session, this.#socket);
  }

  #request(path: string, token?: string, withinMs?: number): { stream: ClientHttp2Stream; wasSent: () => boolean } {
    const session = this.#open();
    const headers: OutgoingHttpHeaders = {
      ':method': 'POST',
      ':path': path,
      'content-type': 'application/grpc',
      te: 'trailers',
      // A member without a leader says so at once instead of letting us wait, and ends our streams.
      hasleader: 'true',
    };
    if (withinMs !== undefined) headers['grpc-timeout'] = `${Math.ceil(withinMs)}m`;
    if (token !== undefined) Object.assign(headers, { token, [sensitiveHeaders]: ['token'] });
    let connected = !session.connecting;
    if (!connected) session.once('connect', () => (connected = true));
    return { stream: session.request(headers), wasSent: () => connected };
  }

  #open(): ClientHttp2Session {
    if (this.#session && !this.#session.destroyed && !this.#session.closed) return this.#session;
    const { host, port, tls } = this.#member;
    const name = host.includes(':') ? `[${host}]` : host;
    const socket = dial(this.#member);
    const session = connectHttp2(`${tls ? 'https' : 'http'}://${name}:${port}`, {
      createConnection: () => socket,
      settings: { enablePush: false, maxHeaderListSize: LONGEST_HEADERS },
    });
    const forget = (): void => {
      if (this.#session === session) this.#session = undefined;
    };
    // What went wrong is told by each of its streams.
    session.on('error', () => {});
    session.on('close', forget);
    this.#socket = socket;
    session.on('goaway', forget);
    session.setMaxListeners(0);
    session.unref();
    this.#session = session;
    return session;
  }

  /** Calls keep the process alive until they are answered; streams, which never end, do not. */
  #underWay(calls: number, streams: number): void {
    this.#calls += calls;
    this.#streams += streams;
    if (calls !== 0) {
      if (this.#calls > 0) this.#session?.ref();
      else this.#session?.unref();
    }
    if (this.#calls + this.#streams === 0) {
      clearInterval(this.#pinger);
      this.#pinger = undefined;
      // Nobody waits for it any more, and a socket that connects keeps the process alive, unref'd or not.
      if (this.#session?.connecting) this.close();
    } else {
      this.#pinger ??= setInterval(() => this.#ping(), PING_EVERY_MS).unref();
    }
  }

  #ping(): void {
    const session = this.#session;
    const socket = this.#socket;
    if (!session || !socket || session.destroyed) return;
    const silent = setTimeout(() => end(session, socket), PONG_WITHIN_MS).unref();
    const answered = (): void => clearTimeout(silent);
    if (session.connecting) session.once('connect', answered);
    else session.ping(answered);
  }
}

function dial({ host, port, tls }: Member): Socket {
  if (!tls) return connectTcp({ host, port, noDelay: true });
  // An address is no name that a server could be asked for.
  const servername = isIP(host) ? {} : { servername: host };
  return connectTls({ host, port, ...tls, ...servername, ALPNProtocols: ['h2'] });
}

/**
 * The socket, too: a session that is destroyed while it still connects leaves it open (seen with Node.js 20), and then the
 * process can't even exit.
 */
function end(session: ClientHttp2Session, socket: Socket): void {
  session.destroy();
  socket.destroy();
}

interface Ears {
  readonly data: (piece: Buffer) => void;
  /** Undefined: it ended as it should. */
  readonly ended: (failure: EtcdError | undefined) => void;
}

/** However it ends, `ended` is called once; what can't be read ends it too. */
function listen(stream: ClientHttp2Stream, wasSent: () => boolean, { data, ended }: Ears): void {
  let status: number | undefined;
  let told = '';
  let failure: EtcdError | undefined;
  const heard = (headers: IncomingHttpHeaders): void => {
    const http = Number(headers[':status'] ?? 200);
    if (headers['grpc-status'] !== undefined) status = Number(headers['grpc-status']);
    else if (http !== 200) failure = broken(`HTTP status ${http}`);
    const words = headers['grpc-message'];
    if (words !== undefined) told = unescaped(String(words).slice(0, LONGEST_WORDS));
  };
  stream.on('response', heard);
  stream.on('trailers', heard);
  stream.on('data', (piece: Buffer) => {
    try {
      if (!failure) data(piece);
    } catch (error) {
      failure =
        error instanceof TooMuchError
          ? new EtcdError(STATUS.resourceExhausted, `an answer that is too large (${error.message})`, true)
          : broken('an answer that can’t be read');
      stream.close(constants.NGHTTP2_PROTOCOL_ERROR);
    }
  });
  stream.on('error', (error: Error) => {
    // Of a connection that can't be made Node.js says that the stream was cancelled, and keeps why.
    const { message, code }: NodeJS.ErrnoException = error.cause instanceof Error ? error.cause : error;
    const hint = code === 'ERR_HTTP2_ERROR' ? `. ${orStranger('etcd')}` : '';
    failure ??= new EtcdError(STATUS.unavailable, message + hint, wasSent());
  });
  stream.on('close', () => {
    if (status !== STATUS.ok)
      failure ??= new EtcdError(
        status ?? STATUS.unavailable,
        told || `the connection was lost. ${orStranger('etcd')}`,
        wasSent(),
      );
    ended(failure);
  });
}

/** It speaks, but not as etcd does. Another member may. */
function broken(message: string): EtcdError {
  return new EtcdError(STATUS.unavailable, message, true);
}

function unescaped(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}
