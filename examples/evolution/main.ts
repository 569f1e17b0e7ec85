/**
 * `npm run evolution`: the locks that people write before they take a library, each broken in front of your eyes on a real
 * server, and what Holdfast does in the same moment. `npm run evolution -- redlock fencing` for some chapters,
 * `npm run evolution -- --pages` also puts what it printed into docs/evolution.md and docs/evolution.zh-CN.md.
 */
import type { Chapter } from './chapter.js';
import { CHAPTERS } from './chapters.js';
import { writePages } from './pages.js';
import { drawn, heading, LEGEND } from './picture.js';
import { play } from './play.js';
import { Servers } from './servers.js';

const words = process.argv.slice(2).filter((word) => word !== '--pages');
const unknown = words.filter((word) => !CHAPTERS.some((chapter) => chapter.word === word));
if (unknown.length > 0) {
  console.error(`There is no chapter ${unknown.join(', ')}. There are: ${CHAPTERS.map(({ word }) => word).join(', ')}`);
  process.exit(64);
}

// A server that grants nothing yet is a warning of Holdfast's. The picture shows it better than a line in its middle.
process.removeAllListeners('warning');
process.on('warning', () => {});

const startedAt = performance.now();
await using servers = new Servers();
console.log(`${LEGEND}\n`);
for (const [at, chapter] of CHAPTERS.entries()) {
  if (words.length > 0 && !words.includes(chapter.word)) continue;
  await show(chapter, at + 1);
}
console.log(`${((performance.now() - startedAt) / 1_000).toFixed(1)} s`);

async function show(chapter: Chapter, number: number): Promise<void> {
  console.log(`${heading(chapter, number)}\n${chapter.tries}\n\n${indented(chapter.code)}\n`);
  const { naive, holdfast } = await play(chapter, servers);
  console.log(`${drawn(naive)}\n\nHoldfast, in the same moment:\n\n${drawn(holdfast)}\n`);
  if (process.argv.includes('--pages')) await writePages(chapter, { naive, holdfast });
}

function indented(code: string): string {
  return code.replaceAll(/^(?=.)/gm, '    ');
}
