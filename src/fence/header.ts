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
import { ConfigError, StaleTokenError } from '../core/errors.js';
import type { Lease } from '../index.js';
import { LARGEST_TOKEN, type OpenOptions, presented } from './presented.js';

export const TOKEN_HEADER = 'Holdfast-Token';

/** For clients other than fetch: `{ 'Holdfast-Token': '…' }`. */
export function tokenHeaders(shown: Lease | bigint, options?: OpenOptions): Record<string, string> {
  const { token, mode } = presented(shown, options);
  return { [TOKEN_HEADER]: mode === 'read' ? `${token}; shared` : `${token}` };
}

/** Undefined: it has none. Throws a ConfigError if it is something else than a token. */
export function parseToken(header: unknown): Fence | undefined {
  if (header === undefined || header === null) return undefined;
  const found = typeof header === 'string' ? /^\s*([0-9]{1,19})\s*(;\s*shared\s*)?$/.exec(header) : null;
  const token = found ? BigInt(found[1]!) : 0n;
  if (token < 1n || token > LARGEST_TOKEN)
    throw new ConfigError(
      `${TOKEN_HEADER} is a lease's token in decimals, and "; shared" if it is a reader's; got ${show(header)}.`,
    );
  return { token, mode: found![2] === undefined ? 'write' : 'read' };
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
    const headers = new Headers(init?.headers ?? (input instanceof Request ? input.headers : undefined));
    for (const [name, value] of Object.entries(words)) headers.set(name, value);
    const response = await fetch(input, { ...init, headers });
    if (response.status === 412) await throwIfStale(response.clone());
    return response;
  };
}

/** 412 is said of other preconditions too. */
async function throwIfStale(response: Response): Promise<void> {
  const said = (await response.json().catch(() => undefined)) as Partial<Record<string, unknown>> | undefined;
  if (said?.['code'] !== 'HOLDFAST_STALE_TOKEN') return;
  const { lock, token, newest } = said;
  throw new StaleTokenError(String(lock), BigInt(String(token)), BigInt(String(newest)));
}
