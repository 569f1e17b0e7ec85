/** A README of one minute, and pages whose links lead somewhere. */
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { dirname, join, resolve } from 'node:path';
import { describe, expect, test } from 'vitest';

const ROOT = resolve(import.meta.dirname, '../..');
const pages = [
  ...readdirSync(ROOT).filter((file) => file.endsWith('.md')),
  ...readdirSync(join(ROOT, 'docs'), { recursive: true })
    .map((file) => join('docs', String(file)))
    .filter((file) => file.endsWith('.md')),
];

/** As GitHub makes the anchor of a heading. */
function anchorOf(heading: string): string {
  const words = heading
    .replaceAll(/\[([^\]]*)\]\([^)]*\)/g, '$1')
    .trim()
    .toLowerCase();
  return words.replaceAll(/[^\p{L}\p{N}\s_-]/gu, '').replaceAll(' ', '-');
}

function anchorsOf(file: string): string[] {
  const text = readFileSync(file, 'utf8').replaceAll(/^```.*?^```$/gms, '');
  return [...text.matchAll(/^#+ (.*)$/gm)].map(([, heading]) => anchorOf(heading!));
}

/** Those that lead nowhere. */
function deadLinksOf(page: string): string[] {
  const text = readFileSync(join(ROOT, page), 'utf8').replaceAll(/^```.*?^```$/gms, '');
  return [...text.matchAll(/\]\((?!https?:|mailto:)([^)#\s]*)(#[^)\s]*)?\)/g)].flatMap(([link, path, anchor]) => {
    const file = path ? resolve(ROOT, dirname(page), path) : join(ROOT, page);
    if (!existsSync(file)) return [link];
    return anchor && !anchorsOf(file).includes(decodeURIComponent(anchor.slice(1))) ? [link] : [];
  });
}

test('the README is read in a minute: it has at most 200 lines', () => {
  expect(readFileSync(join(ROOT, 'README.md'), 'utf8').split('\n').length).toBeLessThanOrEqual(200);
});

describe('every link leads to a page, and to a heading that it has', () => {
  test.each(pages)('%s', (page) => {
    expect(deadLinksOf(page)).toEqual([]);
  });
});

test('the index of the documentation names every page of it', () => {
  const index = readFileSync(join(ROOT, 'docs/README.md'), 'utf8');
  const own = pages.filter((page) => /^docs\/(engines\/)?[^/]+$/.test(page) && page !== 'docs/README.md');
  expect(own.filter((page) => !index.includes(`(${page.slice('docs/'.length)})`))).toEqual([]);
});
