/** Text of others is read in time by its length, not by its square: a megabyte of it must not stop a process. */
import { expect, test } from 'vitest';
import { maskCredentials } from '../../../src/cli/text.js';
import { EngineError, LeaseLostError } from '../../../src/core/errors.js';
import { parseEngineUrl } from '../../../src/kit/url.js';

const readers: readonly (readonly [string, (text: string) => unknown])[] = [
  ['the message of an error', (text) => new EngineError(text)],
  ['the cause of an error', (text) => new EngineError('down', { cause: new Error(text) })],
  ['a cause that is no error', (text) => new EngineError('down', { cause: text })],
  ['the reason of an eviction', (detail) => new LeaseLostError('n', { reason: 'evicted', detail })],
  ['what the command line prints', (text) => maskCredentials(text)],
  ["an engine's URL", (text) => tried(() => parseEngineUrl(`redis://h/${text}`))],
  ['a URL without hosts', (text) => tried(() => parseEngineUrl(`sqlite:${text}`))],
];

const patterns = ['://x', '?', '/', '@', '://@', ' ://', '\u001b', 'a', '?@', ':', '%41'];

test.each(readers)('%s', (_name, read) => {
  for (const pattern of patterns) {
    const small = fastest(() => read(pattern.repeat(4_000)));
    const large = fastest(() => read(pattern.repeat(40_000)));
    // Ten times as much for ten times the text. By the square it would be a hundred times, of what is many seconds then.
    expect(large, pattern).toBeLessThan(Math.max(40 * small, 250));
  }
});

function tried(work: () => unknown): void {
  try {
    work();
  } catch {
    // Most of it is no URL.
  }
}

/** Milliseconds of processor time, because the machine may be busy with something else; the least of three, because we may be. */
function fastest(work: () => unknown): number {
  let least = Infinity;
  for (let time = 0; time < 3; time += 1) {
    const began = process.cpuUsage();
    work();
    const { user, system } = process.cpuUsage(began);
    least = Math.min(least, (user + system) / 1_000);
    if (least > 2_000) break;
  }
  return least;
}
