import { ConfigError } from '../core/errors.js';

/**
 * Loads an optional client library. The caller writes the literal `import('name')`, so that bundlers see it:
 *
 *     const { Redis } = await loadPeer('ioredis', () => import('ioredis'));
 */
export async function loadPeer<T>(packageName: string, load: () => Promise<T>): Promise<T> {
  try {
    return await load();
  } catch (error) {
    if (!isMissing(packageName, error)) throw error;
    throw new ConfigError(
      `This engine needs the package "${packageName}", which is not installed. Run: npm install ${packageName}`,
    );
  }
}

/** Not one that the package itself needs: installing the package again would not help then. */
function isMissing(packageName: string, error: unknown): boolean {
  if (!(error instanceof Error)) return false;
  const { code } = error as { code?: unknown };
  if (code !== 'ERR_MODULE_NOT_FOUND' && code !== 'MODULE_NOT_FOUND') return false;
  return error.message.includes(`'${packageName}'`) || error.message.includes(`'${packageName}/`);
}
