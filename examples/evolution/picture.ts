/**
 * Draws a scene: time goes down, and everybody has a column.
 *
 *       ms  Ada                 Ben
 *     0 ms  ┃ SET NX → OK
 *   101 ms  ┃                   ┃ SET NX → OK      ◀ two inside
 */
import type { Chapter } from './chapter.js';
import { insideIn, type Finding, type Lane, type Scene, type Step } from './scene.js';

const MARKS: Readonly<Record<Lane, string>> = { outside: ' ', waits: '┊', inside: '┃', frozen: '░' };
export const LEGEND = '┃ inside   ░ frozen inside   ┊ waits   ✗ broken   ✓ holds   ○ left open';
const TIME_WIDTH = 9;
const LINE_WIDTH = 110;

export function drawn({ steps, findings }: Scene): string {
  return [...timeline(steps), '', ...findings.flatMap(finding)].join('\n');
}

export function heading({ title }: Chapter, number: number): string {
  const text = `── ${number}. ${title} `;
  return text.padEnd(LINE_WIDTH, '─');
}

function timeline(steps: readonly Step[]): string[] {
  const actors = [...(steps[0]?.lanes.keys() ?? [])];
  const widths = new Map(actors.map((actor) => [actor, widthOf(actor, steps)]));
  const header = actors.map((actor) => actor.padEnd(widths.get(actor)!)).join('');
  return [`${' '.repeat(TIME_WIDTH)}${header}`.trimEnd(), ...steps.map((step) => row(step, widths))];
}

function widthOf(actor: string, steps: readonly Step[]): number {
  const texts = steps.filter((step) => step.actor === actor).map(({ text }) => text.length);
  return Math.max(actor.length, ...texts) + 5;
}

function row({ ms, actor, text, lanes }: Step, widths: ReadonlyMap<string, number>): string {
  const cells = [...lanes].map(([each, lane]) =>
    `${MARKS[lane]} ${each === actor ? text : ''}`.padEnd(widths.get(each)!),
  );
  const alarm = insideIn(lanes) > 1 ? '◀ two inside' : '';
  return `${`${Math.round(ms)} ms`.padStart(TIME_WIDTH - 2)}  ${cells.join('')}${alarm}`.trimEnd();
}

/** Wrapped, so that it can be read in a terminal. */
function finding({ mark, text }: Finding): string[] {
  const lines: string[] = [];
  for (const word of text.split(' ')) {
    const line = lines.at(-1);
    if (line !== undefined && line.length + word.length + 3 <= LINE_WIDTH) lines[lines.length - 1] = `${line} ${word}`;
    else lines.push(word);
  }
  return lines.map((line, at) => `${at === 0 ? mark : ' '} ${line}`);
}
