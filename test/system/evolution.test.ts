/** The two pages on the evolution of locks tell the same; that they tell what is seen is test/engines/evolution.test.ts. */
import { readFile } from 'node:fs/promises';
import { expect, test } from 'vitest';
import { CHAPTERS } from '../../examples/evolution/chapters.js';
import { PAGES } from '../../examples/evolution/pages.js';
import { Scene } from '../../examples/evolution/scene.js';

const pages = await Promise.all(PAGES.map((page) => readFile(page, 'utf8')));

test('both pages have every chapter, in order, with the code that runs and the same pictures', () => {
  const [english, chinese] = pages.map((page) => Array.from(page.matchAll(/^```((?:ts|text) [^\n]*)\n(.*?)^```$/gms)));
  const texts = (blocks: typeof english): string[] => blocks!.map(([, info, text]) => `${info}\n${text}`);
  expect(texts(chinese)).toEqual(texts(english));
  expect(english!.map(([, info]) => info)).toEqual(
    CHAPTERS.flatMap(({ word }) => [`ts ${word}`, `text ${word} naive`, `text ${word} holdfast`]),
  );
  const code = new Map(english!.map(([, info, text]) => [info, text]));
  for (const chapter of CHAPTERS) expect(code.get(`ts ${chapter.word}`)).toBe(`${chapter.code}\n`);
});

test('a sentence that was not measured fails its chapter', () => {
  expect(() => new Scene().holds('Never were two inside.', 2, 1)).toThrow('"Never were two inside." was not seen');
});
