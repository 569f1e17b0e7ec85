/**
 * How long a request is at work, and whether it may have worked. Both must be answered on the safe side: whoever is let in too
 * early writes between the read and the write of another, and a token that worked and is forgotten lets older ones pass.
 *
 * A request is at work until its response has been ended and every promise that it holds has settled; under a fetch handler, until
 * the body of its response has been produced, whoever reads it. A response may also close without an end: the client has gone, or a stream failed. Then
 *
 *     its head was sent, or the handler destroyed it   the handler had answered: it is over
 *     the request never came whole                     the handler waits for the rest and does not get it: it is over
 *     nothing was answered yet                         the handler does not know, and goes on; for how long, we don't know
 */
import { setTimeout } from '../core/real-time.js';
import type { Leave } from './gate.js';

/** What a Node.js request has, and those of Express and Fastify with it. */
export interface NodeRequest {
  readonly headers: Readonly<Record<string, string | string[] | undefined>>;
}

/** What a Node.js response has. */
export interface NodeResponse {
  statusCode: number;
  setHeader(name: string, value: string): unknown;
  end(body?: string): unknown;
  once(event: 'close', listener: () => void): unknown;
}

/** What can be seen of a request and its response, where the server has it. */
interface Incoming {
  readonly method?: string;
  readonly complete?: boolean;
  readonly socket?: Socket | null;
  destroy?(): unknown;
}

interface Outgoing extends NodeResponse {
  readonly headersSent?: boolean;
  readonly destroyed?: boolean;
  readonly writableEnded?: boolean;
  destroy?(...args: unknown[]): unknown;
}

interface Socket {
  readonly destroyed?: boolean;
  once(event: 'close', listener: () => void): unknown;
}

export class AtWork {
  /** Once it is answered with something that is produced while it is read. */
  #body: BodyAtWork | undefined;
  #cutOffMs: number | undefined;
  readonly #leave: Leave;
  /** The answer, and each promise that is held. */
  #unsettled = 1;
  #worked: boolean | undefined;

  constructor(leave: Leave) {
    this.#leave = leave;
  }

  /** Called again it does nothing. */
  answered(worked: boolean): void {
    if (this.#worked !== undefined) return;
    this.#worked = worked;
    this.#settled();
  }

  /** The answer, as it is to be sent. The request is at work until it has been produced. */
  answeredWith(response: Response, worked: boolean): Response {
    const { body } = response;
    const isStream = typeof body?.getReader === 'function' && !body.locked;
    if (!isStream) {
      this.answered(worked);
      return response;
    }
    this.#body = new BodyAtWork(body, () => this.answered(worked));
    if (this.#cutOffMs !== undefined) this.#body.cutOffAfter(this.#cutOffMs);
    return new (classOf(response))(this.#body.stream, response);
  }

  /** Somebody newer waits: an answer that nobody reads from now on is cut off after this time. */
  overtaken(cutOffMs: number): void {
    this.#cutOffMs = cutOffMs;
    this.#body?.cutOffAfter(cutOffMs);
  }

  /** False: too late, somebody newer may be inside. */
  hold(work: PromiseLike<unknown>): boolean {
    if (this.#unsettled === 0) return false;
    this.#unsettled += 1;
    const settled = (): void => this.#settled();
    Promise.resolve(work).then(settled, settled);
    return true;
  }

  #settled(): void {
    this.#unsettled -= 1;
    if (this.#unsettled === 0) this.#leave(this.#worked!);
  }
}

/** That of its library, and not one that a framework has made of it, whose constructor may take something else. */
function classOf(response: Response): typeof Response {
  let prototype = Object.getPrototypeOf(response) as Response;
  for (let base = prototype; base !== Object.prototype; base = Object.getPrototypeOf(base) as Response)
    prototype = base;
  return prototype.constructor as typeof Response;
}

type Piece = Awaited<ReturnType<ReadableStreamDefaultReader<Uint8Array>['read']>>;

/** As much of a body is produced before anybody reads it. */
const AHEAD_BYTES = 64 * 1024;

/**
 * A body that is read one piece ahead, so that its end is known as soon as the handler has come to it: what a text or a file is made
 * of is over before anybody reads it, and what a handler makes piece by piece is over with the last one.
 */
class BodyAtWork {
  readonly stream: ReadableStream<Uint8Array>;
  readonly #reader: ReadableStreamDefaultReader<Uint8Array>;
  readonly #over: () => void;
  #next: Promise<Piece>;
  #state: 'producing' | 'waiting' | 'over' = 'waiting';
  #reads = 0;

  constructor(body: ReadableStream<Uint8Array>, over: () => void) {
    this.#reader = body.getReader();
    this.#over = () => {
      this.#state = 'over';
      over();
    };
    this.#next = this.#readAhead();
    this.stream = new ReadableStream(
      {
        pull: (controller) => this.#pass(controller),
        cancel: (reason) => this.#cancel(reason),
      },
      { highWaterMark: AHEAD_BYTES, size: (piece) => piece?.byteLength ?? 0 },
    );
  }

  /** As soon as nobody has read for half of this time. A piece that the handler is still at is waited for. */
  cutOffAfter(ms: number): void {
    const before = this.#reads;
    setTimeout(() => {
      if (this.#state === 'waiting' && this.#reads === before) void this.#cancel('A newer holder waits.');
      else if (this.#state !== 'over') this.cutOffAfter(ms);
    }, ms / 2).unref();
  }

  #readAhead(): Promise<Piece> {
    const next = this.#produce();
    // Whoever reads on is told.
    next.catch(() => {});
    return next;
  }

  async #produce(): Promise<Piece> {
    this.#state = 'producing';
    try {
      const read = await this.#reader.read();
      if (read.done) this.#over();
      else this.#state = 'waiting';
      return read;
    } catch (error) {
      this.#over();
      throw error;
    }
  }

  async #pass(controller: ReadableStreamDefaultController<Uint8Array>): Promise<void> {
    this.#reads += 1;
    const { done, value } = await this.#next;
    if (done) return controller.close();
    this.#next = this.#readAhead();
    controller.enqueue(value);
  }

  async #cancel(reason: unknown): Promise<void> {
    try {
      await this.#reader.cancel(reason);
    } finally {
      this.#over();
    }
  }
}

/**
 * Whether an older token must never pass from now on. A refusal says that nothing was done. Where there is no answer, or one
 * that says that something broke, a read has told nobody anything, but a write may have been done.
 *
 * @param status undefined if there was no answer
 */
export function mayHaveWorked(
  method: string | undefined,
  status: number | undefined,
  isRefusal: (status: number) => boolean,
): boolean {
  if (status !== undefined && status >= 100 && status < 500) return !isRefusal(status);
  return !/^(get|head|options)$/i.test(method ?? '');
}

/** Nobody would hear an answer of the handler: the client has gone, or somebody else has answered. */
export function isOver(request: object, response: NodeResponse): boolean {
  const { destroyed, writableEnded } = response as Outgoing;
  return destroyed === true || writableEnded === true || incoming(request).socket?.destroyed === true;
}

/** Tells when the response of a Node.js server is over. */
export function watch(
  request: object,
  response: NodeResponse,
  over: (status: number | undefined, heard: 'whole' | 'part') => void,
  unansweredMs: number,
): void {
  const outgoing: Outgoing = response;
  const { socket } = incoming(request);
  const isWhole = (): 'whole' | 'part' => (incoming(request).complete === false ? 'part' : 'whole');
  before(outgoing, 'end', () => over(outgoing.statusCode, 'whole'));
  before(outgoing, 'destroy', () => over(outgoing.headersSent ? outgoing.statusCode : undefined, isWhole()));
  const gone = (): void => {
    if (outgoing.headersSent) over(outgoing.statusCode, 'whole');
    else if (isWhole() === 'part') over(undefined, 'part');
    else setTimeout(() => over(undefined, 'whole'), unansweredMs).unref();
  };
  response.once('close', gone);
  // A response that stands behind another on its connection has no socket yet, and does not hear that it closed.
  if (socket) whenClosed(socket, response, gone);
}

/** Ends a request that has not come whole: who keeps its upload open would keep everybody newer out. */
export function cutOff(request: object): void {
  const raw = incoming(request);
  if (raw.complete === false) raw.destroy?.();
}

/** Fastify has its own around that of Node.js. */
function incoming(request: object): Incoming {
  return (request as { raw?: Incoming }).raw ?? request;
}

function before(response: Outgoing, method: 'end' | 'destroy', then: () => void): void {
  const original = response[method]?.bind(response) as ((...args: unknown[]) => unknown) | undefined;
  if (!original) return;
  response[method] = (...args: unknown[]) => {
    then();
    return original(...args);
  };
}

/** One listener for each connection, however many requests come on it. */
const closing = new WeakMap<Socket, Map<object, () => void>>();

function whenClosed(socket: Socket, response: NodeResponse, gone: () => void): void {
  let listeners = closing.get(socket);
  if (!listeners) {
    listeners = new Map();
    closing.set(socket, listeners);
    const all = listeners;
    socket.once('close', () => {
      for (const each of all.values()) each();
    });
  }
  listeners.set(response, gone);
  response.once('close', () => listeners.delete(response));
}
