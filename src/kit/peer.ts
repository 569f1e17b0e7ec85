/**
 * Optional client libraries. An engine loads its own by a literal import inside of try and catch: only then do bundlers see that
 * it may be missing, and build a program that does without it.
 *
 *     try {
 *       return exportsOf('ioredis', 'Redis', await import('ioredis'));
 *     } catch (error) {
 *       throw notLoaded('ioredis', error);
 *     }
 */
import { ConfigError } from '../core/errors.js';

/** What the package exports: of a CommonJS one, some bundlers give it all as `default`, and nothing beside it. */
export function exportsOf<T extends object>(packageName: string, needed: keyof T & string, module: T): T {
  const { default: whole } = module as { default?: T };
  if (typeof module[needed] === 'function') return module;
  if (typeof whole?.[needed] === 'function') return whole;
  if (isVacant(module)) throw missing(packageName);
  throw new ConfigError(
    `The package "${packageName}" has no "${needed}". Use a version that Holdfast names as its peer.`,
  );
}

/** Why it is not there: no error of the engine, and nothing that trying again could cure. */
export function notLoaded(packageName: string, error: unknown): ConfigError {
  if (error instanceof ConfigError) return error;
  if (isMissing(packageName, error)) return missing(packageName);
  const why = (error as Error | undefined)?.message ?? String(error);
  return new ConfigError(`This engine needs the package "${packageName}", which could not be loaded: ${why}`);
}

function missing(name: string): ConfigError {
  return new ConfigError(`This engine needs the package "${name}", which is not installed. Run: npm install ${name}`);
}

/** What Next.js 15 puts into the place of a peer that is not installed: a module that exports nothing. */
function isVacant(module: object): boolean {
  const { default: whole = {}, ...others } = module as { default?: unknown };
  return Object.keys({ ...others, ...(whole as object) }).length === 0 && typeof whole === 'object';
}

const MISSING = new Set<unknown>(['ERR_MODULE_NOT_FOUND', 'MODULE_NOT_FOUND']);

/** Not one that the package itself needs: installing the package again would not help then. */
function isMissing(packageName: string, error: unknown): boolean {
  const { code, message } = (error ?? {}) as { code?: unknown; message?: unknown };
  const said = String(message);
  // Yarn's Plug'n'Play says in its own words who wanted what, and what Vite puts into the place of a missing package has no code.
  const wanted = /^holdfast tried to access (\S+)/.exec(said) ?? /^Could not resolve "([^"]+)"/.exec(said);
  const absent = MISSING.has(code) ? /['"]([^'"]+)['"]/.exec(said) : null;
  return [wanted, absent].some((told) => told?.[1] === packageName || told?.[1]?.startsWith(`${packageName}/`));
}
