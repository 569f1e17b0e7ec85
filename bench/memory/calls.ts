/** How many calls of our own functions a piece of work makes, and in how many of our files. */
import { execFileSync } from 'node:child_process';
import { Session } from 'node:inspector/promises';
import { resolve } from 'node:path';
import { pathToFileURL } from 'node:url';

const ROOT = resolve(import.meta.dirname, '../..');
const MODULES = resolve(ROOT, '.cache/modules');

/** Holdfast with a file for each of its sources: in the package they are bundled, and files say nothing. */
export async function unbundled(): Promise<typeof import('holdfast')> {
  execFileSync(resolve(ROOT, 'node_modules/.bin/tsc'), ['-p', 'tsconfig.build.json', '--outDir', MODULES], {
    cwd: ROOT,
  });
  return import(pathToFileURL(resolve(MODULES, 'index.js')).href);
}

/** Of code that `unbundled` gave. */
export async function callsOf(work: () => Promise<unknown>): Promise<{ calls: number; files: number }> {
  const session = new Session();
  session.connect();
  try {
    await session.post('Profiler.enable');
    await session.post('Profiler.startPreciseCoverage', { callCount: true, detailed: false });
    await session.post('Profiler.takePreciseCoverage');
    await work();
    const { result } = await session.post('Profiler.takePreciseCoverage');
    const files = result
      .filter(({ url }) => url.startsWith(pathToFileURL(MODULES).href))
      .map(({ functions }) => functions.reduce((sum, { ranges }) => sum + ranges[0]!.count, 0))
      .filter((calls) => calls > 0);
    return { calls: files.reduce((sum, calls) => sum + calls, 0), files: files.length };
  } finally {
    session.disconnect();
  }
}
