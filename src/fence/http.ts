/**
 * The fence of an HTTP service: requests whose `Holdfast-Token` is stale are refused, before they reach the handler.
 *
 * It keeps what was shown in memory (gate.ts). That is right where one process keeps the resource and outlives the
 * leases. Where several processes, or a database, stand behind it, hand the token on: `fences.of(request)` is what
 * the fence of the database is opened with, inside of the handler's transaction.
 *
 * Refused: 412 a stale token · 428 none at all · 400 something else than a token · 503 an older request is still at work, or
 * there are more resources than are kept.
 */
import { type Duration, parseDuration, show } from '../core/duration.js';
import { LONGEST_TIMER_MS } from '../core/long-timer.js';
import type { Fence } from '../core/engine.js';
import { ConfigError, EngineError, HoldfastError, quote, StaleTokenError } from '../core/errors.js';
import { setImmediate, setTimeout } from '../core/real-time.js';
import { AtWork, cutOff, isOver, mayHaveWorked, type NodeRequest, type NodeResponse, watch } from './at-work.js';
import { Gate, type Leave } from './gate.js';
import { parseToken, TOKEN_HEADER } from './header.js';
import { checkResource } from './presented.js';

export interface HttpFenceOptions<R> {
  /** What a request is about, such as `account:1`; undefined if it needs no token. */
  readonly resource: (request: R) => string | undefined;
  /** Keeps what was shown beyond this process: `fence(redis)`, for example. Default: nothing does. */
  readonly store?: FenceStore | undefined;
  /** How long a newer request waits for an older one that is still at work. Default: '10s'. */
  readonly timeout?: Duration | undefined;
  /** How long a handler that has not answered is taken to be at work after its client has gone. Default: '1m'. */
  readonly unanswered?: Duration | undefined;
  /** Which answers say that nothing was done, so that nothing is remembered of them. Default: 400 to 499. */
  readonly refused?: ((status: number) => boolean) | undefined;
  /** How many resources are kept in memory. Those that do not fit are answered with 503. Default: 100,000. */
  readonly mostResources?: number | undefined;
  /**
   * Forgets a resource that nobody has asked for during this time. That is a hole: a holder who was stalled for longer is let
   * in again with its old token. Default: nothing is forgotten.
   */
  readonly forgetAfter?: Duration | undefined;
}

export interface FenceStore {
  open(resource: string, token: bigint, options: { readonly shared: boolean }): Promise<unknown>;
}

/** What a request has shown. */
export interface ShownToken {
  readonly token: bigint;
  readonly shared: boolean;
  /**
   * The request is at work until this has settled, whatever becomes of its response and its client. Gives it back; what it
   * rejects with is yours to handle. Throws an EngineError if the request is over already.
   */
  hold<P extends PromiseLike<unknown>>(work: P): P;
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
  readonly #unansweredMs: number;
  readonly #shown = new WeakMap<object, ShownToken>();

  constructor(options: HttpFenceOptions<R>) {
    if (typeof options?.resource !== 'function')
      throw new ConfigError('httpFence needs resource: a function from a request to the name of what it is about.');
    const { mostResources = 100_000, forgetAfter, store, timeout = '10s', unanswered = '1m' } = options;
    if (!Number.isSafeInteger(mostResources) || mostResources < 1)
      throw new ConfigError(`mostResources must be a whole number from 1; got ${show(mostResources)}.`);
    const forgetAfterMs = forgetAfter === undefined ? Infinity : parseDuration(forgetAfter, 'forgetAfter');
    this.#options = options;
    this.#gate = new Gate({ most: mostResources, forgetAfterMs, stored: store !== undefined });
    this.#timeoutMs = Math.min(parseDuration(timeout, 'timeout'), LONGEST_TIMER_MS);
    this.#unansweredMs = Math.min(parseDuration(unanswered, 'unanswered'), LONGEST_TIMER_MS);
  }

  /** What a request has shown, to open the fence of a database with, and the way to stay at work after the response. */
  of(request: R): ShownToken | undefined {
    return this.#shown.get(request);
  }

  /**
   * For servers whose handlers take a Request and give a Response. The request is at work until the handler's promise has
   * settled and the body of its response has been produced; a handler that goes on beside that holds the promise of it.
   */
  handler(handle: (request: R & Request) => Response | Promise<Response>): (request: R & Request) => Promise<Response> {
    return async (request) => {
      const entered = await this.#enter(request, request.headers.get(TOKEN_HEADER));
      if ('status' in entered)
        return new Response(entered.body, { status: entered.status, headers: headersOf(entered) });
      const { atWork } = entered;
      let response: Response | undefined;
      try {
        response = await handle(request);
        return atWork.answeredWith(response, this.#mayHaveWorked(request, response.status));
      } catch (error) {
        atWork.answered(this.#mayHaveWorked(request, response?.status));
        throw error;
      }
    };
  }

  /** For Express and Connect: `app.use(fences.middleware())`. The request is at work until its response is over. */
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
    const { atWork } = entered;
    if (isOver(request, response)) {
      // While it waited for its turn. Its end would not be heard any more.
      refuse();
      atWork.answered(false);
      return false;
    }
    const over = (status: number | undefined, heard: 'whole' | 'part'): void =>
      atWork.answered(heard === 'whole' && this.#mayHaveWorked(request, status));
    watch(request, response, over, this.#unansweredMs);
    return true;
  }

  async #enter(request: R, header: unknown): Promise<Refusal | { readonly atWork: AtWork }> {
    const resource = this.#options.resource(request);
    if (resource === undefined) return { atWork: new AtWork(() => {}) };
    try {
      checkResource(resource);
      const fence = parseToken(header);
      if (!fence) return refusal(428, { code: 'HOLDFAST_TOKEN_REQUIRED', message: `${TOKEN_HEADER} is missing.` });
      const atWork = new AtWork((worked) => leave(worked));
      // In time for the one who waits.
      const cutOffMs = this.#timeoutMs / 2;
      const overtaken = (): void => {
        atWork.overtaken(cutOffMs);
        setTimeout(cutOff, cutOffMs, request).unref();
      };
      const leave: Leave = await this.#gate.enter(resource, fence, { withinMs: this.#timeoutMs, overtaken });
      await this.#present(resource, fence, leave);
      this.#shown.set(request, shownToken(resource, fence, atWork));
      return { atWork };
    } catch (error) {
      if (error instanceof StaleTokenError) return refusal(412, error.toJSON());
      if (error instanceof ConfigError) return refusal(400, error.toJSON());
      if (error instanceof HoldfastError) return refusal(503, error.toJSON());
      throw error;
    }
  }

  async #present(resource: string, { token, mode }: Fence, leave: Leave): Promise<void> {
    try {
      await this.#options.store?.open(resource, token, { shared: mode === 'read' });
    } catch (error) {
      leave(false);
      throw error;
    }
  }

  #mayHaveWorked(request: object, status: number | undefined): boolean {
    const { refused = (code: number) => code >= 400 && code < 500 } = this.#options;
    return mayHaveWorked((request as { method?: string }).method, status, refused);
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

function shownToken(resource: string, { token, mode }: Fence, atWork: AtWork): ShownToken {
  return {
    token,
    shared: mode === 'read',
    hold: (work) => {
      if (atWork.hold(work)) return work;
      throw new EngineError(
        `The request for ${quote(resource)} is over, and a newer one may be at work. Hold before the work begins.`,
        { retryable: false },
      );
    },
  };
}

function refusal(status: number, body: object): Refusal {
  return { status, body: JSON.stringify(body) };
}

function headersOf({ status }: Refusal): Record<string, string> {
  return { 'content-type': 'application/json', ...(status === 503 && { 'retry-after': '1' }) };
}
