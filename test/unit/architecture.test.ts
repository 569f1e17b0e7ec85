/** ARCHITECTURE.md names every file of the rooms that it is about, and no other. */
import { readdirSync, readFileSync } from 'node:fs';
import { basename, join, resolve } from 'node:path';
import { describe, expect, test } from 'vitest';

const ROOT = resolve(import.meta.dirname, '../..');

function section(text: string, heading: string): string {
  const [, after = ''] = text.split(`\n## ${heading}`);
  return after.split('\n## ')[0] ?? '';
}

/** The first column of the table under this heading. */
function named(text: string, heading: string): string[] {
  return [...section(text, heading).matchAll(/^\| (`.*?) +\|/gm)].flatMap(([, cell = '']) =>
    [...cell.matchAll(/`([^`]+\.ts)`/g)].map(([, file = '']) => file),
  );
}

function filesOf(...rooms: readonly string[]): string[] {
  return rooms.flatMap((room) => {
    const files = readdirSync(join(ROOT, 'src', room)).filter((file) => file.endsWith('.ts'));
    return files.map((file) => (rooms.length === 1 ? file : `${room}/${file}`));
  });
}

describe('ARCHITECTURE.md', () => {
  const text = readFileSync(join(ROOT, 'ARCHITECTURE.md'), 'utf8');

  test.each([
    ['`src/core`', ['core']],
    ['`src/kit`', ['kit']],
    ['`src/fence`, `src/sql` and `src/optimistic`', ['fence', 'sql', 'optimistic']],
    ['`src/cli`', ['cli']],
  ])('names every file of %s, and each of them once', (heading, rooms) => {
    expect(named(text, heading).sort()).toEqual(filesOf(...rooms).sort());
  });

  const [rooms = '', ...others] = section(text, '`src/engines/<name>`').split(/^- (?=\*\*)/m);

  test.each(readdirSync(join(ROOT, 'src/engines')))('says what every file of the engine %s is', (engine) => {
    const own = others.find((paragraph) => paragraph.startsWith(`**${engine}**`)) ?? '';
    const all = readdirSync(join(ROOT, 'src/engines', engine), { recursive: true, encoding: 'utf8' });
    const files = all.filter((file) => file.endsWith('.ts') && !file.startsWith('client/'));
    expect(files.map((file) => basename(file)).filter((file) => !`${rooms} ${own}`.includes(`\`${file}\``))).toEqual(
      [],
    );
  });
});

test('the check itself finds a file that is named twice, and one that is not there', () => {
  const text =
    '\n## `src/x`, in order\n\n| file | what |\n| --- | --- |\n| `a.ts` `b.ts` | two |\n| `a.ts`  | again |\n\n## Next\n| `c.ts` | c |\n';
  expect(named(text, '`src/x`')).toEqual(['a.ts', 'b.ts', 'a.ts']);
});
