/** Who may import whom: the table in ARCHITECTURE.md, held against the imports of every file. */
import { readdirSync, readFileSync } from 'node:fs';
import { join, normalize, resolve } from 'node:path';
import { describe, expect, test } from 'vitest';

const ROOT = resolve(import.meta.dirname, '../..');
const SRC = join(ROOT, 'src');

interface Import {
  readonly from: string;
  readonly to: string;
  /** Nothing of it is left when it runs. */
  readonly typeOnly: boolean;
}

/** The rooms that a room may import beside itself. `<name>` is the same name on both sides, or any from outside. */
function table(): ReadonlyMap<string, readonly string[]> {
  const text = readFileSync(join(ROOT, 'ARCHITECTURE.md'), 'utf8');
  const [, section] = text.split('\n## Who may import whom\n');
  const rows = [...section!.split('\n## ')[0]!.matchAll(/^\| (.*?) +\| (.*?) +\|$/gm)].slice(2);
  return new Map(rows.flatMap(([, rooms, may]) => codes(rooms!).map((room) => [room, codes(may!)] as const)));
}

function codes(cell: string): string[] {
  return [...cell.matchAll(/`([^`]+)`/g)].map(([, code]) => code!);
}

/** The text of every file. */
function sources(): ReadonlyMap<string, string> {
  const files = readdirSync(SRC, { recursive: true, encoding: 'utf8' }).filter((file) => file.endsWith('.ts'));
  return new Map(files.map((file) => [file, readFileSync(join(SRC, file), 'utf8')]));
}

/** Whatever else names a file of ours: an import for its effects alone, a `require`, the URL of a worker. */
function unseenIn(file: string, text: string): boolean {
  const paths = [...text.matchAll(/(['"`])\.{1,2}\/[^'"`\n]+\.js\1/g)];
  return paths.length !== importsOf(file, text).length;
}

/** Packages that are loaded with this file, and not only when they are needed. */
function packagesIn(text: string): string[] {
  const statements = [...text.matchAll(/^(?:import|export) (?:(?<names>[^;'"]*?)\s*from )?'(?<name>[^.'][^']*)';$/gm)];
  const loaded = statements.filter(({ groups }) => !areTypes(groups?.['names'] ?? ''));
  return loaded.flatMap(({ groups }) => groups?.['name'] ?? []).filter((name) => !name.startsWith('node:'));
}

/** The formatter has made all of them alike. */
const STATEMENT = /^(?:import|export) (?<names>[^;'"]*?)\s*from '(?<path>\.[^']*)';$/gm;
const LAZY = /\bimport\('(?<path>\.[^']*)'\)/g;

function importsOf(file: string, text: string): readonly Import[] {
  const to = (path: string): string => normalize(join(file, '..', path)).replace(/\.js$/, '.ts');
  const statements = [...text.matchAll(STATEMENT)].map(({ groups }) => groups as { names: string; path: string });
  const lazy = [...text.matchAll(LAZY)].map(({ groups }) => groups as { path: string });
  return [
    ...statements.map(({ names, path }) => ({ from: file, to: to(path), typeOnly: areTypes(names) })),
    ...lazy.map(({ path }) => ({ from: file, to: to(path), typeOnly: false })),
  ];
}

function areTypes(names: string): boolean {
  if (names.startsWith('type ')) return true;
  const [, inside] = /^\{(.*)\}$/s.exec(names) ?? [];
  const each = inside?.split(',').map((name) => name.trim());
  return each?.every((name) => name === '' || name.startsWith('type ')) ?? false;
}

function roomOf(file: string): string {
  const [first, second, third, fourth] = file.split('/');
  if (first !== 'engines') return first!;
  return `engines/${second}${third === 'client' && fourth ? '/client' : ''}`;
}

/** The imports that no row of the table allows. */
function forbidden(all: readonly Import[], rows: ReturnType<typeof table>): string[] {
  return all
    .filter(({ from, to }) => !isAllowed(roomOf(from), roomOf(to), rows))
    .map(({ from, to }) => `${from} imports ${to}`);
}

function isAllowed(from: string, to: string, rows: ReturnType<typeof table>): boolean {
  if (from === to) return true;
  const [, name] = from.split('/');
  const may = rows.get(from) ?? rows.get(from.replace(/^engines\/[^/]+/, 'engines/<name>')) ?? [];
  return may.some((room) => {
    const own = from.startsWith('engines/') ? room.replace('<name>', name!) : room;
    return own === to || own === to.replace(/^engines\/[^/]+/, 'engines/<name>');
  });
}

/** Files that import each other in a circle, as one chain each. */
function cycles(all: readonly Import[]): string[] {
  const next = new Map<string, string[]>();
  for (const { from, to } of all) next.set(from, [...(next.get(from) ?? []), to]);
  const done = new Set<string>();
  const found: string[] = [];
  const walk = (file: string, path: readonly string[]): void => {
    const at = path.indexOf(file);
    if (at !== -1) found.push([...path.slice(at), file].join(' → '));
    if (at !== -1 || done.has(file)) return;
    for (const each of next.get(file) ?? []) walk(each, [...path, file]);
    done.add(file);
  };
  for (const file of next.keys()) walk(file, []);
  return found;
}

describe('imports', () => {
  const rows = table();
  const files = [...sources()];
  const all = files.flatMap(([file, text]) => importsOf(file, text));

  test('are all seen here, in whatever form', () => {
    expect(files.filter(([file, text]) => unseenIn(file, text)).map(([file]) => file)).toEqual([]);
  });

  test('of packages wait until somebody needs them', () => {
    expect(files.flatMap(([file, text]) => packagesIn(text).map((name) => `${file} imports ${name}`))).toEqual([]);
  });

  test('follow the table in ARCHITECTURE.md', () => {
    expect(rows.size).toBeGreaterThan(8);
    expect(all.length).toBeGreaterThan(500);
    expect(forbidden(all, rows)).toEqual([]);
  });

  test('leave no row of the table, and no room in it, unused', () => {
    const used = new Set(all.map(({ from, to }) => `${anyEngine(roomOf(from))} ${anyEngine(roomOf(to))}`));
    const unused = [...rows]
      .flatMap(([room, may]) => may.map((each) => `${room} ${each}`))
      .filter((row) => !used.has(row));
    expect(unused).toEqual([]);
  });

  test('run in no circle', () => {
    expect(cycles(all.filter(({ typeOnly }) => !typeOnly))).toEqual([]);
  });
});

function importing(from: string, to: string): Import {
  return { from, to, typeOnly: false };
}

describe('the check itself', () => {
  const rows = table();

  test.each([
    ['core/a.ts', 'locks/b.ts'],
    ['core/a.ts', 'kit/b.ts'],
    ['locks/a.ts', 'index.ts'],
    ['kit/a.ts', 'engines/redis/b.ts'],
    ['engines/redis/a.ts', 'engines/mysql/b.ts'],
    ['engines/redis/a.ts', 'engines/mysql/client/b.ts'],
    ['engines/etcd/client/a.ts', 'engines/etcd/b.ts'],
    ['fence/a.ts', 'engines/redis/b.ts'],
    ['fence/a.ts', 'locks/b.ts'],
    ['cli/a.ts', 'core/b.ts'],
    ['conformance/a.ts', 'engines/memory/b.ts'],
  ])('finds that %s imports %s', (from, to) => {
    expect(forbidden([importing(from, to)], rows)).toHaveLength(1);
  });

  test.each([
    ['core/a.ts', 'core/b.ts'],
    ['engines/redis/a.ts', 'core/b.ts'],
    ['engines/redis/a.ts', 'engines/redis/client/b.ts'],
    ['schemes.ts', 'engines/redis/index.ts'],
  ])('lets %s import %s', (from, to) => {
    expect(forbidden([importing(from, to)], rows)).toEqual([]);
  });

  test('finds a circle, and knows what is left of an import when it runs', () => {
    expect(cycles([importing('a', 'b'), importing('b', 'c'), importing('c', 'b')])).toEqual(['b → c → b']);
    const text = `import type { A } from './a.js';\nimport { type B } from './b.js';\nimport { type C, d } from './c.js';\nexport const e = () => import('./e.js');\n`;
    expect(importsOf('core/x.ts', text).map(({ to, typeOnly }) => [to, typeOnly])).toEqual([
      ['core/a.ts', true],
      ['core/b.ts', true],
      ['core/c.ts', false],
      ['core/e.ts', false],
    ]);
  });

  test('finds a circle through a lazy import, and forbids a type where the file is forbidden', () => {
    const there = importsOf('kit/a.ts', `export const b = () => import('./b.js');\n`);
    const back = importsOf('kit/b.ts', `import { b } from './a.js';\n`);
    expect(cycles([...there, ...back])).toEqual(['kit/a.ts → kit/b.ts → kit/a.ts']);
    expect(forbidden(importsOf('core/a.ts', `import type { B } from '../kit/b.js';\n`), rows)).toHaveLength(1);
  });

  test.each([`import './b.js';`, `const b = require('./b.js');`, `new Worker(new URL('./b.js', import.meta.url));`])(
    'sees that it can’t read %s',
    (text) => {
      expect(unseenIn('core/a.ts', `${text}\n`)).toBe(true);
    },
  );

  test('knows a package that is loaded at once from one that is not', () => {
    const text = `import 'a';\nimport { b } from 'b';\nimport type { C } from 'c';\nimport { d } from 'node:d';\nawait import('e');\n`;
    expect(packagesIn(text)).toEqual(['a', 'b']);
  });
});

function anyEngine(room: string): string {
  return room.replace(/^engines\/[^/]+/, 'engines/<name>');
}
