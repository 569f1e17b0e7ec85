/**
 * `Holdfast-Token`: how a token travels with a request.
 *
 *     Holdfast-Token: 1837856355699712000            a writer's, or a mutex's
 *     Holdfast-Token: 1837856355699712000; shared    a reader's
 *
 * A token is no secret and no proof: whoever may call the service may claim any. It keeps the overtaken out, not intruders.
 */
import { show } from '../core/duration.js';
import type { Fence } from '../core/engine.js';
import { ConfigError, EngineError, StaleTokenError } from '../core/errors.js';
import type { Lease } from '../index.js';
import { LARGEST_TOKEN, type OpenOptions, presented } from './presented.js';

export const TOKEN_HEADER = 'Holdfast-Token';

/** For clients other than fetch: `{ 'Holdfast-Token': '…' }`. */
export function tokenHeaders(shown: Lease | bigint, options?: OpenOptions): Record<string, string> {
  const { token, mode } = presented(shown, options);
  return { [TOKEN_HEADER]: mode === 'read' ? `${token}; shared` : `${token}` };
}

/** Longer than any token with its mode; nothing longer is looked at. */
const LONGEST_HEADER = 64;

/** Undefined: it has none. Throws a ConfigError if it is something else than a token. */
export function parseToken(header: unknown): Fence | undefined {
  if (header === undefined || header === null) return undefined;
  const isShort = typeof header === 'string' && header.length <= LONGEST_HEADER;
  const [, digits, shared] = (isShort && /^\s*([0-9]+)\s*(;\s*shared\s*)?$/.exec(header)) || [];
  const token = tokenOf(digits);
  if (token === undefined)
    throw new ConfigError(
      `${TOKEN_HEADER} is a lease's token in decimals, and "; shared" if it is a reader's; got ${show(header)}.`,
    );
  return { token, mode: shared === undefined ? 'write' : 'read' };
}

/** The digits are counted first: a text of millions of them takes seconds to read. */
function tokenOf(text: unknown): bigint | undefined {
  if (typeof text !== 'string' || !/^[0-9]{1,19}$/.test(text)) return undefined;
  const token = BigInt(text);
  return token >= 1n && token <= LARGEST_TOKEN ? token : undefined;
}

/**
 * A fetch that shows the lease's token with every request, and rejects with a StaleTokenError where the service refuses it.
 *
 *     const { status } = await fencedFetch(lease)('https://reports.example/42', { method: 'PUT', body });
 */
export function fencedFetch(
  shown: Lease | bigint,
  options: OpenOptions & { readonly fetch?: typeof globalThis.fetch } = {},
): typeof globalThis.fetch {
  const { fetch = globalThis.fetch, ...how } = options;
  const words = tokenHeaders(shown, how);
  return async (input, init) => {
    // By its shape: a Request of the package undici is of another class.
    const own = typeof input === 'object' && 'headers' in input ? input.headers : undefined;
    const headers = new Headers(init?.headers ?? own);
    for (const [name, value] of Object.entries(words)) headers.set(name, value);
    const response = await fetch(input, { ...init, headers });
    if (response.status === 412) await throwIfStale(response.clone());
    return response;
  };
}

/** 412 is said of other preconditions too. */
async function throwIfStale(response: Response): Promise<void> {
  const said = await jsonOf(response).catch(() => undefined);
  if (typeof said !== 'object' || said === null) return;
  const { code, lock, token, newest } = said as Partial<Record<string, unknown>>;
  if (code !== 'HOLDFAST_STALE_TOKEN') return;
  const [shown, seen] = [tokenOf(token), tokenOf(newest)];
  if (typeof lock === 'string' && shown && seen) throw new StaleTokenError(lock, shown, seen);
  throw new EngineError(
    'The service says that the token is stale, in words that make no sense: is it one of another version? Stop, and acquire again.',
    { retryable: false },
  );
}

/** More than any refusal of ours: a name of 512 bytes, twice, each byte as six characters. */
const LONGEST_REFUSAL = 16_384;

async function jsonOf({ body }: Response): Promise<unknown> {
  const reader = body!.getReader();
  const chunks: Uint8Array[] = [];
  for (let length = 0; ;) {
    const { done, value } = await reader.read();
    if (done) return JSON.parse(Buffer.concat(chunks).toString()) as unknown;
    length += value.length;
    chunks.push(value);
    if (length <= LONGEST_REFUSAL) continue;
    // Not awaited: that would wait for the caller, who has the other half of the clone.
    reader.cancel().catch(() => {});
    return undefined;
  }
}
