import { defineConfig } from 'vitest/config';

export default defineConfig({
  test: {
    include: ['test/**/*.test.ts'],
    pool: 'forks',
    // Most tests wait for servers most of the time: more of them than cores.
    maxWorkers: 3,
    // Real clocks on slow machines: a test waits for conditions, and this bound is only for those that hang.
    testTimeout: 60_000,
    hookTimeout: 60_000,
  },
});
