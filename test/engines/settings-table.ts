/** What comes of a setting is found by a test, and stands in a table of the engine's page. */
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect } from 'vitest';
import { HoldfastError } from '../../src/index.js';
import type { Actor } from '../../src/conformance/protocol.js';
import { eventually } from '../servers/wait.js';

/** @param page of docs/engines. @param rows without the head: the setting, and what comes of it with each strategy. */
export async function expectDocumented(page: string, rows: readonly (readonly string[])[]): Promise<void> {
  const text = await readFile(join(import.meta.dirname, '../../docs/engines', `${page}.md`), 'utf8');
  const [, table = ''] = /^\| setting .*\n\|.*\n((?:\|.*\n)*)/m.exec(text) ?? [];
  const documented = table.trim().split('\n').map(cellsOf);
  const found = rows.map((row) => `| ${row.join(' | ')} |`).join('\n');
  expect(documented, `The table in docs/engines/${page}.md should have:\n\n${found}\n`).toEqual(rows);
}

function cellsOf(line: string): readonly string[] {
  return line
    .split('|')
    .slice(1, -1)
    .map((cell) => cell.trim());
}

/**
 * What an error is called, with what it says; `works` where there is none.
 *
 * @param open two who share a lock: each in turn holds it over a beat, and the other is refused meanwhile.
 * @param pause before each beat. Default: none.
 */
export async function outcomeFor(
  open: () => Promise<readonly [Actor, Actor]>,
  pause: () => Promise<void> = async () => {},
): Promise<string> {
  const spec = { name: 'job' };
  try {
    const [first, second] = await open();
    const { claim, token } = await first.hold(spec);
    for (let beats = 0; beats < 2; beats += 1) {
      expect(await second.couldHold(spec)).toBe(false);
      await pause();
      expect(await first.beat({ held: [claim] })).toEqual({ alive: true });
    }
    const waiting = await second.queue(spec);
    expect(await first.session.leave(claim)).toBe(true);
    await eventually('it is handed over', async () => expect(second.grantOf(waiting)).toBeGreaterThan(token));
    expect(await second.beat({ held: [waiting] })).toEqual({ alive: true });
    expect(await first.couldHold(spec)).toBe(false);
    expect([first.lossOf(claim), second.lossOf(waiting)]).toEqual([undefined, undefined]);
    expect(await second.session.leave(waiting)).toBe(true);
    expect(await first.couldHold(spec)).toBe(true);
    return 'works';
  } catch (error) {
    if (!(error instanceof Error) || error.name === 'AssertionError') throw error;
    // Whatever else an engine rejects with is an EngineError to a user.
    return `${error instanceof HoldfastError ? error.name : 'EngineError'}: ${error.message}`;
  }
}

/** As the table has it. */
export function cellOf(outcome: string): string {
  const [name = ''] = outcome.split(':');
  return name === 'works' ? name : `\`${name}\``;
}
