/** What a database's answer to an open fence means. */
import type { Fence } from '../core/engine.js';
import { ConfigError, StaleTokenError } from '../core/errors.js';
import { newest } from '../core/fence.js';
import type { Row } from '../sql/port.js';

/** Outside of one, others come in between the check and the write; every statement would be a transaction of its own. */
export function checkTransaction(inTransaction: boolean | undefined): void {
  if (inTransaction === false)
    throw new ConfigError(
      'A fence must be opened inside of a transaction, and this connection is in none: between the check and your write ' +
        'others could come in. Begin one first.',
    );
}

const MISSING: ReadonlySet<unknown> = new Set(['42P01', '3F000', 'ER_NO_SUCH_TABLE', 1146]);

/** Adapters wrap errors; the database's own is inside then. */
export function isMissingTable(error: unknown): boolean {
  for (let each = error, depth = 0; each instanceof Error && depth < 4; each = each.cause, depth += 1) {
    const { code, errno } = each as { code?: unknown; errno?: unknown };
    if (MISSING.has(code) || MISSING.has(errno) || /no such table: \w*fence\b|fence' doesn't exist/.test(each.message))
      return true;
  }
  return false;
}

export function tokensOf(row: Row | undefined): { readonly read: bigint; readonly wrote: bigint } {
  // By place: libraries rename columns.
  const [read, wrote] = Object.values(row!).map((value) => BigInt(String(value)));
  return { read: read!, wrote: wrote! };
}

export function stale(
  resource: string,
  { token }: Fence,
  { read, wrote }: { read: bigint; wrote: bigint },
): StaleTokenError {
  return new StaleTokenError(resource, token, newest(read, wrote));
}
