/**
 * `npm run evolution`: every lock that it shows breaks as it says, Holdfast answers as it says, and the pages carry what it
 * prints. A chapter's sentences come with their measurements (examples/evolution/scene.ts), so a chapter that plays to its
 * end has seen all that it says.
 */
import { readFile } from 'node:fs/promises';
import { afterAll, describe, expect, test } from 'vitest';
import { CHAPTERS } from '../../../examples/evolution/chapters.js';
import { blockOn, blocksOf, masked, PAGES } from '../../../examples/evolution/pages.js';
import { play } from '../../../examples/evolution/play.js';
import type { Scene } from '../../../examples/evolution/scene.js';
import { Servers } from '../../../examples/evolution/servers.js';

export interface Outcome {
  /** The marks of what was found: ✗ broken, ○ left open, ✓ right. */
  readonly naive: string;
  readonly holdfast: string;
  /** The most that were inside at once, without Holdfast and with it. */
  readonly mostInside: readonly [number, number];
}

/** By their words, one after the other: they share servers, and measure this process. */
export function evolution(outcomes: Readonly<Record<string, Outcome>>): void {
  const servers = new Servers();
  afterAll(() => servers[Symbol.asyncDispose]());

  describe('the lock breaks and Holdfast’s stands, as both pages show', () => {
    test.each(Object.entries(outcomes))('%s', async (word, outcome) => {
      const chapter = CHAPTERS.find((each) => each.word === word)!;
      const played = await play(chapter, servers);
      const { naive, holdfast } = played;
      const mostInside = [naive.mostInside, holdfast.mostInside];
      expect({ naive: marksOf(naive), holdfast: marksOf(holdfast), mostInside }).toEqual(outcome);
      for (const page of PAGES) {
        const text = await readFile(page, 'utf8');
        for (const [info, block] of blocksOf(chapter, played))
          expect(masked(blockOn(text, info) ?? '')).toBe(masked(block));
      }
    });
  });
}

function marksOf({ findings }: Scene): string {
  return findings.map(({ mark }) => mark).join('');
}
