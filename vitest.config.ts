/**
 * Projects, by what a test needs. `npm run test:unit` runs the first; `npm test` runs the first three; `npm run test:deep`
 * adds `engines`; `npm run test:matrix` chooses for itself.
 */
import { defineConfig } from 'vitest/config';
import { NotRun, notRunHere } from './test/servers/not-run.js';

/** No server, and no time that passes by itself: `test:unit` promises to be done in seconds. */
const UNIT = ['test/unit/**/*.test.ts', 'test/faults/**/*.test.ts', 'test/conformance/memory.test.ts'];

const PROJECTS: Readonly<Record<string, readonly string[]>> = {
  unit: UNIT,
  /** Every engine, by one client. */
  conformance: ['test/conformance/*.test.ts'],
  /** What is built on the locks: command line, fences, optimistic rows, examples, the package itself. */
  system: ['test/system/**/*.test.ts'],
  /** What only a real server shows, and the servers themselves: faults, topologies, crowds. */
  engines: ['test/engines/**/*.test.ts', 'test/servers/**/*.test.ts'],
  /** Other clients and larger clusters, for hours of patience. */
  matrix: ['test/matrix/**/*.test.ts'],
};

const notRun = notRunHere(import.meta.dirname);

export default defineConfig({
  test: {
    pool: 'forks',
    // Most tests wait for servers most of the time: twice as many of them as a small machine has cores.
    maxWorkers: 4,
    // Real clocks on slow machines: a test waits for conditions, and this bound is only for those that hang. Processes that
    // hand a lock to each other a thousand times need a minute where many others are at work.
    testTimeout: 180_000,
    hookTimeout: 180_000,
    reporters: ['default', 'json', new NotRun(notRun)],
    outputFile: { json: '.cache/tests.json' },
    passWithNoTests: true,
    projects: Object.entries(PROJECTS).map(([name, include]) => ({
      extends: true,
      test: {
        name,
        include: [...include],
        exclude: [...(name === 'unit' ? [] : UNIT), ...notRun.flatMap(({ files }) => files)],
      },
    })),
  },
});
