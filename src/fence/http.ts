/**
 * The fence of an HTTP service: requests whose `Holdfast-Token` is stale are refused, before they reach the handler.
 *
 * It keeps what was shown in memory (gate.ts). That is right where one process keeps the resource and outlives the
 * leases. Where several processes, or a database, stand behind it, hand the token on: `fences.of(request)` is what
 * the fence of the database is opened with, inside of the handler's transaction.
 *
 * Refused: 412 a stale token · 428 none at all · 400 something else than a token · 503 an older request is still at work.
 */
import { type Duration, parseDuration } from '../core/duration.js';
import type { Fence } from '../core/engine.js';
import { ConfigError, HoldfastError, StaleTokenError } from '../core/errors.js';
import { Gate } from './gate.js';
import { parseToken, TOKEN_HEADER } from './header.js';
import { checkResource } from './presented.js';

export interface HttpFenceOptions<R> {
  /** What a request is about, such as `account:1`; undefined if it needs no token. */
  readonly resource: (request: R) => string | undefined;
  /** Keeps what was shown beyond this process: `fence(redis)`, for example. Default: nothing does. */
  readonly store?: FenceStore | undefined;
  /** How long a newer request waits for an older one that is still at work. Default: '10s'. */
  readonly timeout?: Duration | undefined;
  /** How many resources are kept in memory. Default: 100,000. */
  readonly mostResources?: number | undefined;
}

export interface FenceStore {
  open(resource: string, token: bigint, options: { readonly shared: boolean }): Promise<unknown>;
}

/** What a Node.js request has, and those of Express and Fastify with it. */
export interface NodeRequest {
  readonly headers: Readonly<Record<string, string | string[] | undefined>>;
}

/** What a Node.js response has. */
export interface NodeResponse {
  statusCode: number;
  setHeader(name: string, value: string): unknown;
  end(body?: string): unknown;
}

/** A refusal, as every kind of server can send it. */
interface Refusal {
  readonly status: number;
  readonly body: string;
}

export class HttpFence<R extends object> {
  readonly #options: HttpFenceOptions<R>;
  readonly #gate: Gate;
  readonly #timeoutMs: number;
  readonly #shown = new WeakMap<object, { readonly token: bigint; readonly shared: boolean }>();

  constructor(options: HttpFenceOptions<R>) {
    if (typeof options?.resource !== 'function')
      throw new ConfigError('httpFence needs resource: a function from a request to the name of what it is about.');
    this.#options = options;
    this.#gate = new Gate(options.mostResources ?? 100_000);
    this.#timeoutMs = parseDuration(options.timeout ?? '10s', 'timeout');
  }

  /** What a request has shown, to open the fence of a database with. */
  of(request: R): { readonly token: bigint; readonly shared: boolean } | undefined {
    return this.#shown.get(request);
  }

  /** For servers whose handlers take a Request and give a Response. */
  handler(handle: (request: R & Request) => Response | Promise<Response>): (request: R & Request) => Promise<Response> {
    return async (request) => {
      const entered = await this.#enter(request, request.headers.get(TOKEN_HEADER));
      if ('status' in entered)
        return new Response(entered.body, { status: entered.status, headers: headersOf(entered) });
      try {
        return await handle(request);
      } finally {
        entered.leave();
      }
    };
  }

  /** For Express and Connect: `app.use(fences.middleware())`. The request is at work until its response has been ended. */
  middleware(): (request: R & NodeRequest, response: NodeResponse, next: (error?: unknown) => void) => void {
    return (request, response, next) => {
      // Not inside of the promise: what the next one throws is not ours to catch.
      void this.#admit(request, request.headers, response).then(
        (admitted) => void (admitted && setImmediate(next)),
        (error: unknown) => setImmediate(next, error),
      );
    };
  }

  /** For Fastify: `app.addHook('preHandler', fences.hook())`. */
  hook(): (request: R & NodeRequest, reply: { readonly raw: NodeResponse; hijack(): unknown }) => Promise<void> {
    return async (request, reply) => {
      await this.#admit(request, request.headers, reply.raw, () => reply.hijack());
    };
  }

  async #admit(
    request: R,
    headers: NodeRequest['headers'],
    response: NodeResponse,
    refuse: () => void = () => {},
  ): Promise<boolean> {
    const entered = await this.#enter(request, headers[TOKEN_HEADER.toLowerCase()]);
    if ('status' in entered) {
      refuse();
      response.statusCode = entered.status;
      for (const [name, value] of Object.entries(headersOf(entered))) response.setHeader(name, value);
      response.end(entered.body);
      return false;
    }
    whenEnded(response, entered.leave);
    return true;
  }

  async #enter(request: R, header: unknown): Promise<Refusal | { leave: () => void }> {
    const resource = this.#options.resource(request);
    if (resource === undefined) return { leave: () => {} };
    try {
      checkResource(resource);
      const fence = parseToken(header);
      if (!fence) return refusal(428, { code: 'HOLDFAST_TOKEN_REQUIRED', message: `${TOKEN_HEADER} is missing.` });
      const leave = await this.#gate.enter(resource, fence, this.#timeoutMs);
      await this.#present(resource, fence, leave);
      this.#shown.set(request, { token: fence.token, shared: fence.mode === 'read' });
      return { leave };
    } catch (error) {
      if (error instanceof StaleTokenError) return refusal(412, error.toJSON());
      if (error instanceof ConfigError) return refusal(400, error.toJSON());
      if (error instanceof HoldfastError) return refusal(503, error.toJSON());
      throw error;
    }
  }

  async #present(resource: string, { token, mode }: Fence, leave: () => void): Promise<void> {
    try {
      await this.#options.store?.open(resource, token, { shared: mode === 'read' });
    } catch (error) {
      leave();
      throw error;
    }
  }
}

/**
 * A fence for an HTTP service.
 *
 *     const fences = httpFence({ resource: (request) => new URL(request.url).pathname });
 *     const serve = fences.handler(async (request) => new Response('only the newest holder gets here'));
 */
export function httpFence<R extends object>(options: HttpFenceOptions<R>): HttpFence<R> {
  return new HttpFence(options);
}

function refusal(status: number, body: object): Refusal {
  return { status, body: JSON.stringify(body) };
}

function headersOf({ status }: Refusal): Record<string, string> {
  return { 'content-type': 'application/json', ...(status === 503 && { 'retry-after': '1' }) };
}

/**
 * When the handler has ended its response. Not when the client has gone: the handler does not know, and goes on writing to
 * what the fence protects. So every handler must end its response, whatever happens.
 */
function whenEnded(response: NodeResponse, then: () => void): void {
  const end = response.end.bind(response);
  response.end = (...args: Parameters<NodeResponse['end']>) => {
    then();
    return end(...args);
  };
}
