/** How many calls of our own functions a piece of work makes, and in how many of our files. */
import { Session } from 'node:inspector/promises';

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
      .filter(({ url }) => url.includes('/dist/') && !url.includes('/node_modules/'))
      .map(({ functions }) => functions.reduce((sum, { ranges }) => sum + ranges[0]!.count, 0))
      .filter((calls) => calls > 0);
    return { calls: files.reduce((sum, calls) => sum + calls, 0), files: files.length };
  } finally {
    session.disconnect();
  }
}
