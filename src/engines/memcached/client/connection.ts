/**
 * One connection to one memcached, opened when it is needed and again after it broke. No library of this ecosystem has
 * the meta commands, by which alone a lock can be renewed and freed without touching another's.
 *
 * Commands go out in the order of the calls and are answered in it; that order is part of the protocol (protocol.ts). What is
 * called in one turn goes as one packet. When a reply does not come, or can't be understood, whatever follows could belong
 * to another call: the link is broken, and every call on it is unknown.
 */
import { orStranger } from '../../../kit/stranger.js';
import { connect, type Socket } from 'node:net';
import type { Clock } from '../../../core/clock.js';
import { Deadlines } from '../../../core/deadlines.js';
import { EngineError } from '../../../core/errors.js';
import { nextTick } from '../../../core/real-time.js';
import { type Reply, ReplyParser } from './replies.js';

export interface MemcachedServer {
  readonly host: string;
  readonly port: number;
}

export function addressOf({ host, port }: MemcachedServer): string {
  return `${host}:${port}`;
}

export interface ConnectionSetup {
  readonly server: MemcachedServer;
  readonly user: string | undefined;
  readonly password: string | undefined;
  readonly clock: Clock;
}

/** The core has a deadline of its own for every call. This one gets us a new connection. */
const SILENCE_MS = 2_000;

interface Call {
  resolve(reply: Reply): unknown;
  reject(error: EngineError): unknown;
  /** What to say if it is refused, and of all that follows. Absent: the others are only unknown. */
  readonly refused: EngineError | undefined;
  /** What to say if the item is no number. Of this call alone: nothing of it can have been taken for another command. */
  readonly noNumber: EngineError | undefined;
}

export interface CallOptions {
  /** What `ms` stores. */
  readonly value?: string;
  /** Only on this link: rejects if it is not the one that is open. */
  readonly on?: number;
  /** For `ma`: what to say if the item is no number. */
  readonly noNumber?: EngineError;
}

/** A socket and the calls that it has not answered. */
class Link {
  readonly socket: Socket;
  readonly #calls: Call[] = [];
  readonly #parser = new ReplyParser();
  readonly #onBroken: () => void;
  #unsent = '';
  #broken: EngineError | undefined;

  constructor({ host, port }: MemcachedServer, onBroken: () => void) {
    this.#onBroken = onBroken;
    this.socket = connect({ host, port, noDelay: true, keepAlive: true });
    this.socket.on('data', (chunk) => this.#heard(chunk));
    this.socket.on('error', (error) => this.break(new EngineError(`memcached: ${error.message}.`, { cause: error })));
    this.socket.on('close', () =>
      this.break(new EngineError(`memcached: the connection was closed. ${orStranger('memcached')}`)),
    );
  }

  send(bytes: string, call: Call): void {
    if (this.#broken) return void call.reject(this.#broken);
    // A call under way keeps the process alive; a connection does not.
    if (this.#calls.length === 0) this.socket.ref();
    this.#calls.push(call);
    if (this.#unsent === '') nextTick(() => this.#flush());
    this.#unsent += bytes;
  }

  break(error: EngineError): void {
    if (this.#broken) return;
    this.#broken = error;
    this.#onBroken();
    for (const call of this.#calls.splice(0)) call.reject(error);
    this.socket.destroy();
  }

  #flush(): void {
    const bytes = this.#unsent;
    this.#unsent = '';
    if (!this.#broken) this.socket.write(bytes, 'latin1');
  }

  #heard(chunk: Buffer): void {
    if (this.#broken) return;
    try {
      for (const reply of this.#parser.push(chunk)) this.#answer(reply);
    } catch (error) {
      this.break(error instanceof EngineError ? error : new EngineError((error as Error).message));
    }
    if (this.#calls.length === 0) this.socket.unref();
  }

  /** Throws what breaks the link. */
  #answer(reply: Reply): void {
    const call = this.#calls.shift();
    if (!call) throw new Error('memcached answered what nobody asked for.');
    if (!reply.code.endsWith('ERROR')) return void call.resolve(reply);
    if (call.noNumber && reply.flags.includes('non-numeric')) return void call.reject(call.noNumber);
    call.reject(call.refused ?? refusal(reply));
    // It may have taken the rest of our bytes for commands, and answer those, too.
    throw call.refused ?? new EngineError('memcached: the connection was given up after an error.');
  }
}

/** `ERROR` alone is its word for a command that it does not know. */
function refusal({ code, flags }: Reply): EngineError {
  if (code === 'ERROR' && flags.length === 0)
    return new EngineError('memcached does not know the meta commands: 1.6 or newer is needed.', { retryable: false });
  const text = [code, ...flags].join(' ');
  return new EngineError(`memcached refuses: ${text}.`, { retryable: code !== 'CLIENT_ERROR' });
}

export class Connection {
  readonly #setup: ConnectionSetup;
  readonly #deadlines: Deadlines;
  #link: Link | undefined;
  #links = 0;
  #closed = false;

  constructor(setup: ConnectionSetup) {
    this.#setup = setup;
    this.#deadlines = new Deadlines(setup.clock, SILENCE_MS);
  }

  /** Which link is open, opened now if there was none. What was heard on one may be wrong on the next. */
  get link(): number {
    if (!this.#closed) this.#opened();
    return this.#links;
  }

  /** @param command a meta command without its end. */
  call(command: string, { value, on, noNumber }: CallOptions = {}): Promise<Reply> {
    if (this.#closed) return Promise.reject(new EngineError('memcached: the connection has been closed.'));
    const link = this.#opened();
    if (on !== undefined && on !== this.#links)
      return Promise.reject(new EngineError('memcached: the connection broke in between.'));
    return this.#send(link, value === undefined ? `${command}\r\n` : `${command}\r\n${value}\r\n`, { noNumber });
  }

  close(): void {
    this.#closed = true;
    this.#link?.break(new EngineError('memcached: the connection has been closed.'));
  }

  #opened(): Link {
    if (this.#link) return this.#link;
    const { server } = this.#setup;
    const link: Link = new Link(server, () => {
      if (this.#link === link) this.#link = undefined;
    });
    this.#link = link;
    this.#links += 1;
    this.#login(link);
    return link;
  }

  /** Where a user is needed, it is the first thing that is said; what follows fails if it is refused. */
  #login(link: Link): void {
    const { server, user, password } = this.#setup;
    if (user === undefined) return;
    const words = Buffer.from(`${user} ${password ?? ''}`).toString('latin1');
    const refused = new EngineError(`memcached at ${addressOf(server)} refuses the user or the password.`, {
      retryable: false,
    });
    // A server that asks for no user takes it for a value. This one has run out before anybody can read it.
    this.#send(link, `set auth 0 -1 ${words.length}\r\n${words}\r\n`, { refused }).catch(() => {});
  }

  #send(link: Link, bytes: string, { refused, noNumber }: Partial<Pick<Call, 'refused' | 'noNumber'>>): Promise<Reply> {
    return new Promise((resolve, reject) => {
      const call = this.#deadlines.start(() => {
        const silence = new EngineError(`memcached at ${addressOf(this.#setup.server)} does not answer.`);
        reject(silence);
        link.break(silence);
      });
      link.send(bytes, {
        resolve: (reply) => call.answered() && resolve(reply),
        reject: (error) => call.answered() && reject(error),
        refused,
        noNumber,
      });
    });
  }
}
