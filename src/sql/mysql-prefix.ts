import { ConfigError } from '../core/errors.js';

export const DEFAULT_PREFIX = 'holdfast_';

/** It becomes a part of statements, so nothing that is more than a name gets through. */
export function checkPrefix(prefix: unknown): string {
  if (typeof prefix === 'string' && /^[a-z_][a-z0-9_]{0,29}$/i.test(prefix)) return prefix;
  throw new ConfigError("tablePrefix has 1 to 30 of the letters a to z, digits and '_', and begins with no digit.");
}
