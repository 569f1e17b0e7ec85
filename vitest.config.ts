/**
 * Projects, by what a test needs. `npm run test:unit` runs the first; `npm test` runs the first three; `npm run test:deep`
 * runs `engines`; `npm run test:matrix` chooses for itself.
 */
import { defineConfig } from 'vitest/config';
import { filesNotRun, NotRun } from './test/servers/not-run.js';

/** Where the tests of each are: folders and files. */
const PROJECTS = {
  /** No server, and no time that passes by itself: it promises to be done in seconds. */
  unit: ['test/unit', 'test/conformance/memory.test.ts'],
  /** Every engine, by one client. */
  conformance: ['test/conformance'],
  /** What is built on the locks: command line, fences, optimistic rows, examples, the package itself. */
  system: ['test/system'],
  /** What only a real server shows, and the harness that starts and breaks servers. */
  engines: ['test/engines', 'test/projects', 'test/servers', 'test/faults'],
  /** Other clients and larger clusters. */
  matrix: ['test/matrix'],
};

const notRun = filesNotRun(import.meta.dirname);

export default defineConfig({
  test: {
    pool: 'forks',
    // Most tests wait for servers most of the time: twice as many of them as a small machine has cores.
    maxWorkers: 4,
    // Real clocks on slow machines: a test waits for conditions, and this bound is only for those that hang. Processes that
    // hand a lock to each other a thousand times need a minute where many others are at work.
    testTimeout: 180_000,
    hookTimeout: 180_000,
    reporters: ['default', 'json', new NotRun(PROJECTS, notRun)],
    outputFile: { json: '.cache/tests.json' },
    passWithNoTests: true,
    projects: Object.entries(PROJECTS).map(([name, places]) => ({
      extends: true,
      test: {
        name,
        // Nothing of a unit test outlives it, and a new world for each file would take longer than the tests.
        ...(name === 'unit' && { isolate: false }),
        include: patterns(places),
        exclude: [...(name === 'unit' ? [] : patterns(PROJECTS.unit)), ...notRun.flatMap(({ files }) => files)],
      },
    })),
  },
});

function patterns(places: readonly string[]): string[] {
  return places.map((place) => (place.endsWith('.ts') ? place : `${place}/**/*.test.ts`));
}
