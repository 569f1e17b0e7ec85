import { defineConfig } from 'vitest/config';

export default defineConfig({
  test: {
    include: ['test/**/*.test.ts'],
    pool: 'forks',
    // Most tests wait for servers most of the time: twice as many of them as a small machine has cores.
    maxWorkers: 4,
    // Real clocks on slow machines: a test waits for conditions, and this bound is only for those that hang. Processes that
    // hand a lock to each other a thousand times need a minute where many others are at work.
    testTimeout: 180_000,
    hookTimeout: 180_000,
  },
});
