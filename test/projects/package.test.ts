/** What lies in the package. `dist` must have been built. */
import { readFileSync } from 'node:fs';
import { dirname, relative, resolve } from 'node:path';
import { expect, test } from 'vitest';

const DIST = resolve(import.meta.dirname, '../../dist');
const ENGINES = ['etcd', 'memcached', 'memory', 'mysql', 'postgres', 'redis', 'sqlite', 'zookeeper'];

/** All that loading a file loads with it, and all that any of these may load later. */
function reachedBy(entry: string): { files: ReadonlySet<string>; later: ReadonlySet<string> } {
  const files = new Set([resolve(DIST, entry)]);
  const later = new Set<string>();
  for (const file of files) {
    const text = readFileSync(file, 'utf8');
    for (const [, path] of text.matchAll(/^(?:import|export)\b[^"\n]*"(\.[^"]+)";/gm))
      files.add(resolve(dirname(file), path!));
    for (const [, path] of text.matchAll(/\bimport\("(\.[^"]+)"\)/g)) later.add(resolve(dirname(file), path!));
  }
  return { files, later };
}

function enginesAmong(files: ReadonlySet<string>): readonly string[] {
  const entries = Array.from(files, (file) => /^engines\/(\w+)\/index\.js$/.exec(relative(DIST, file))?.[1]);
  return entries.filter((engine) => engine !== undefined).sort();
}

test.each(ENGINES)('%s leads to no other engine, now or later', (engine) => {
  const { files, later } = reachedBy(`engines/${engine}/index.js`);
  expect(enginesAmong(files)).toEqual([engine]);
  expect([...later]).toEqual([]);
});

test('a program that uses URLs loads no engine before it needs it', () => {
  const { files, later } = reachedBy('index.js');
  expect(enginesAmong(files)).toEqual([]);
  expect(enginesAmong(later)).toEqual(ENGINES);
});

test('holdfast/core leads to one file, and to no engine', () => {
  const { files, later } = reachedBy('core.js');
  expect([...files].map((file) => relative(DIST, file))).toEqual(['core.js', 'chunks/core.js']);
  expect([...later]).toEqual([]);
});

test('what stands in stack traces of every program has the names of the sources, private ones too', () => {
  const core = readFileSync(resolve(DIST, 'chunks/core.js'), 'utf8');
  for (const written of ['#takeRealLock(', 'function runInside(', 'LineLock = class'])
    expect(core.includes(written), written).toBe(true);
});
