import { spawnSync } from 'node:child_process';
import { join } from 'node:path';
import { expect, test } from 'vitest';

test('process.exit() ends a process with its own code, though a thread of it is inside SQLite', () => {
  const ends = Array.from({ length: 5 }, () => {
    const { status, signal } = spawnSync(process.execPath, [join(import.meta.dirname, 'exiting.mjs'), 'shut']);
    return status ?? signal;
  });
  expect(ends).toEqual([7, 7, 7, 7, 7]);
});
