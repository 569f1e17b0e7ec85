/**
 * One connection to one memcached, opened when it is needed and again after it broke. No library of this ecosystem has
 * the meta commands, by which alone a lock can be renewed and freed without touching another's.
 *
 * Commands go out in the order of the calls and are answered in it; that order is part of the protocol (slots.ts). When a
 * reply does not come, or can't be understood, whatever follows could belong to another call: the connection is broken,
 * and every call on it is unknown.
 */
import { connect, type Socket } from 'node:net';
import type { Clock } from '../../core/clock.js';
import { Deadlines } from '../../core/deadlines.js';
import { EngineError } from '../../core/errors.js';
import { type Reply, ReplyParser } from './replies.js';
import { addressOf, type MemcachedServer } from './url.js';

export interface ConnectionSetup {
  readonly server: MemcachedServer;
  readonly user: string | undefined;
  readonly password: string | undefined;
  readonly clock: Clock;
}

/** The core has a deadline of its own for every call. This one gets us a new connection. */
const SILENCE_MS = 2_000;

interface Call {
  resolve(reply: Reply): void;
  reject(error: EngineError): void;
}

/** A socket and the calls that it has not answered. */
class Link {
  readonly calls: Call[] = [];
  readonly socket: Socket;
  readonly #parser = new ReplyParser();
  #broken: EngineError | undefined;

  constructor({ host, port }: MemcachedServer, onBroken: () => void) {
    this.socket = connect({ host, port, noDelay: true, keepAlive: true });
    this.socket.on('data', (chunk) => this.#heard(chunk));
    this.socket.on('error', (error) => this.break(error.message));
    this.socket.on('close', () => {
      this.break('the connection was closed');
      onBroken();
    });
  }

  send(bytes: string, call: Call): void {
    if (this.#broken) return call.reject(this.#broken);
    // A call under way keeps the process alive; a connection does not.
    this.socket.ref();
    this.calls.push(call);
    this.socket.write(bytes, 'latin1');
  }

  break(reason: string): void {
    this.#broken ??= new EngineError(`memcached: ${reason}.`);
    for (const call of this.calls.splice(0)) call.reject(this.#broken);
    this.socket.destroy();
  }

  #heard(chunk: Buffer): void {
    try {
      for (const reply of this.#parser.push(chunk)) this.#answer(reply);
    } catch (error) {
      this.break((error as Error).message);
    }
    if (this.calls.length === 0) this.socket.unref();
  }

  #answer(reply: Reply): void {
    const call = this.calls.shift();
    if (!call) throw new Error('an answer that nobody asked for');
    if (!/ERROR$/.test(reply.code)) return call.resolve(reply);
    // It may have taken the rest of our bytes for commands, and answer those, too.
    const text = [reply.code, ...reply.flags].join(' ');
    call.reject(new EngineError(`memcached refuses: ${text}.`, { retryable: reply.code === 'SERVER_ERROR' }));
    throw new Error('refused');
  }
}

export class Connection {
  readonly #setup: ConnectionSetup;
  readonly #deadlines: Deadlines;
  #link: Link | undefined;
  #closed = false;

  constructor(setup: ConnectionSetup) {
    this.#setup = setup;
    this.#deadlines = new Deadlines(setup.clock, SILENCE_MS);
  }

  /** @param command a meta command without its end. @param value what `ms` stores. */
  call(command: string, value?: string): Promise<Reply> {
    if (this.#closed) return Promise.reject(new EngineError('memcached: the connection has been closed.'));
    return this.#send(this.#opened(), value === undefined ? `${command}\r\n` : `${command}\r\n${value}\r\n`);
  }

  close(): void {
    this.#closed = true;
    this.#link?.break('closed');
  }

  #opened(): Link {
    if (this.#link) return this.#link;
    const { server, user, password } = this.#setup;
    const link: Link = new Link(server, () => {
      if (this.#link === link) this.#link = undefined;
    });
    this.#link = link;
    // Where a user is needed, it is the first thing that is said; what follows fails if it is refused.
    if (user !== undefined) {
      const words = `${user} ${password ?? ''}`;
      this.#send(link, `set auth 0 0 ${Buffer.byteLength(words)}\r\n${words}\r\n`, 'utf8').catch(() => {});
    }
    return link;
  }

  #send(link: Link, bytes: string, encoding: 'latin1' | 'utf8' = 'latin1'): Promise<Reply> {
    const text = encoding === 'utf8' ? Buffer.from(bytes).toString('latin1') : bytes;
    const answer = new Promise<Reply>((resolve, reject) => link.send(text, { resolve, reject }));
    return this.#deadlines.race(answer, () => {
      link.break(`${addressOf(this.#setup.server)} does not answer`);
      return new EngineError('memcached does not answer.');
    });
  }
}
