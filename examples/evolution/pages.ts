/**
 * The pages carry what the program prints, in blocks that are found by the words after their language:
 *
 *     ```ts redlock            the lock
 *     ```text redlock naive    how it breaks
 *     ```text redlock holdfast the same moment with Holdfast
 */
import { readFile, writeFile } from 'node:fs/promises';
import type { Chapter } from './chapter.js';
import { drawn } from './picture.js';
import type { Played } from './play.js';

export const PAGES = ['evolution.md', 'evolution.zh-CN.md'].map(
  (name) => new URL(`../../docs/${name}`, import.meta.url),
);

/** By their first lines, without the backticks. */
export function blocksOf(chapter: Chapter, { naive, holdfast }: Played): ReadonlyMap<string, string> {
  return new Map([
    [`ts ${chapter.word}`, chapter.code],
    [`text ${chapter.word} naive`, drawn(naive)],
    [`text ${chapter.word} holdfast`, drawn(holdfast)],
  ]);
}

export function blockOn(page: string, info: string): string | undefined {
  return blockPattern(info).exec(page)?.[1];
}

/** What differs from run to run: times, tokens, and numbers that are marked as such. Columns shift with them. */
export function masked(text: string): string {
  return text
    .replaceAll(/~[\d,.]+/g, '~#')
    .replaceAll(/\d+ ms/g, '# ms')
    .replaceAll(/ +/g, ' ')
    .replaceAll(/^ /gm, '')
    .trim();
}

export async function writePages(chapter: Chapter, played: Played): Promise<void> {
  for (const page of PAGES) {
    let text = await readFile(page, 'utf8');
    for (const [info, block] of blocksOf(chapter, played)) {
      if (blockOn(text, info) === undefined) throw new Error(`${page.pathname} has no block "${info}"`);
      text = text.replace(blockPattern(info), () => `\`\`\`${info}\n${block}\n\`\`\``);
    }
    await writeFile(page, text);
  }
}

function blockPattern(info: string): RegExp {
  return new RegExp(`^\`\`\`${info}\\n(.*?)^\`\`\`$`, 'ms');
}
