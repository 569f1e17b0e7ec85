/**
 * Speaks RESP2 to a Redis without a client library. Libraries retry, redirect and reconnect; a test that makes faults
 * wants to see what the server itself said, and on which connection.
 *
 *     await command(port, 'SET', 'a', 1);          // 'OK', over a connection of its own
 *     using connection = await RedisConnection.open(port);
 *     await connection.send('GET', 'a');           // '1'
 */
import { once } from 'node:events';
import { connect, type Socket } from 'node:net';
import { addressOf, type Where } from './ports.js';

export type Reply = string | number | null | readonly Reply[];

/** The servers are on this machine; one that takes longer is paused or gone, however busy the machine is. */
const ANSWER_WITHIN_MS = 20_000;

/** An error reply rejects with the server's words as the message. */
export async function command(where: Where, ...words: readonly (string | number)[]): Promise<Reply> {
  using connection = await RedisConnection.open(where);
  return await connection.send(...words);
}

/** The lines `key:value` of INFO and CLUSTER INFO. */
export async function info(where: Where, ...words: readonly string[]): Promise<Map<string, string>> {
  const lines = String(await command(where, ...words)).split('\r\n');
  return new Map(lines.map((line) => [line.slice(0, line.indexOf(':')), line.slice(line.indexOf(':') + 1)]));
}

interface Waiter {
  readonly resolve: (reply: Reply) => void;
  readonly reject: (error: Error) => void;
}

/** Requests may be sent before the replies to earlier ones are here. */
export class RedisConnection {
  readonly #socket: Socket;
  readonly #waiters: Waiter[] = [];
  #unread = Buffer.alloc(0);

  static async open(where: Where): Promise<RedisConnection> {
    const { host, port } = addressOf(where);
    const socket = connect({ port, host, noDelay: true });
    await once(socket, 'connect');
    return new RedisConnection(socket, port);
  }

  private constructor(socket: Socket, port: number) {
    this.#socket = socket;
    socket.setTimeout(ANSWER_WITHIN_MS, () => this.#fail(`no answer from port ${port} in ${ANSWER_WITHIN_MS} ms`));
    socket.on('data', (bytes) => this.#read(bytes));
    socket.on('error', (error) => this.#fail(error.message));
    socket.on('close', () => this.#fail(`port ${port} closed the connection without an answer`));
  }

  send(...words: readonly (string | number)[]): Promise<Reply> {
    return new Promise((resolve, reject) => {
      this.#waiters.push({ resolve, reject });
      if (this.#socket.destroyed) this.#fail('the connection is closed');
      else this.#socket.write(encode(words));
    });
  }

  [Symbol.dispose](): void {
    this.#socket.destroy();
  }

  #read(bytes: Buffer): void {
    this.#unread = Buffer.concat([this.#unread, bytes]);
    for (let parsed = parse(this.#unread, 0); parsed !== undefined; parsed = parse(this.#unread, 0)) {
      this.#unread = this.#unread.subarray(parsed.end);
      const waiter = this.#waiters.shift();
      if (parsed.value instanceof Error) waiter?.reject(parsed.value);
      else waiter?.resolve(parsed.value);
    }
  }

  /** An idle connection may be idle for as long as it likes. */
  #fail(message: string): void {
    if (this.#waiters.length > 0) this.#socket.destroy();
    for (const waiter of this.#waiters.splice(0)) waiter.reject(new Error(message));
  }
}

function encode(words: readonly (string | number)[]): string {
  const bulks = words.map((word) => `$${Buffer.byteLength(`${word}`)}\r\n${word}\r\n`);
  return `*${words.length}\r\n${bulks.join('')}`;
}

/** `end` is where the next value begins. */
interface Parsed<T> {
  readonly value: T;
  readonly end: number;
}

/** Undefined while bytes are missing. */
function parse(bytes: Buffer, start: number): Parsed<Reply | Error> | undefined {
  const lineEnd = bytes.indexOf('\r\n', start);
  if (lineEnd === -1) return undefined;
  const line = bytes.toString('utf8', start + 1, lineEnd);
  const end = lineEnd + 2;
  switch (bytes.toString('latin1', start, start + 1)) {
    case '+':
      return { value: line, end };
    case '-':
      return { value: new Error(line), end };
    case ':':
      return { value: Number(line), end };
    case '$':
      return parseBulk(bytes, end, Number(line));
    case '*':
      return parseArray(bytes, end, Number(line));
    default:
      return { value: new Error(`not RESP2: ${bytes.toString('latin1', start, lineEnd)}`), end };
  }
}

function parseBulk(bytes: Buffer, start: number, length: number): Parsed<Reply> | undefined {
  if (length === -1) return { value: null, end: start };
  const end = start + length;
  if (bytes.length < end + 2) return undefined;
  return { value: bytes.toString('utf8', start, end), end: end + 2 };
}

function parseArray(bytes: Buffer, start: number, length: number): Parsed<Reply | Error> | undefined {
  if (length === -1) return { value: null, end: start };
  const values: Reply[] = [];
  let failed: Error | undefined;
  let end = start;
  for (let read = 0; read < length; read += 1) {
    const element = parse(bytes, end);
    if (element === undefined) return undefined;
    if (element.value instanceof Error) failed ??= element.value;
    else values.push(element.value);
    end = element.end;
  }
  // One error among the replies of a transaction fails it all: the caller wanted every one of them.
  return { value: failed ?? values, end };
}
