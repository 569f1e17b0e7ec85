/** The gates themselves take minutes; whether their bugs can still be planted is known at once. */
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { API_BUGS, CORE_BUGS, TESTED_BUGS } from '../mutants/core.js';
import { ENGINE_BUGS } from '../mutants/engines/index.js';
import { check, ROOT } from '../mutants/plant.js';

const engineBugs = Object.values(ENGINE_BUGS).flat();

test('every planted bug still has its place in the sources', () => {
  for (const bug of [...CORE_BUGS, ...API_BUGS, ...TESTED_BUGS, ...engineBugs]) check(bug);
});

test('every bug of an engine is to be found by a test whose file exists', () => {
  expect(engineBugs.map(({ foundBy }) => foundBy.file).filter((file) => !existsSync(join(ROOT, file)))).toEqual([]);
});

test.each(Object.entries(ENGINE_BUGS))('%s has at least four bugs, each with a name of its own', (_engine, bugs) => {
  expect(new Set(bugs.map(({ name }) => name)).size).toBe(bugs.length);
  expect(bugs.length).toBeGreaterThanOrEqual(4);
});
