/**
 * What the documentation shows runs, and prints what it says. Examples import 'holdfast' as a user does, so `dist` must
 * have been built; `npm test` does that first.
 */
import { execFile } from 'node:child_process';
import { mkdir, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';

const run = promisify(execFile);
const root = new URL('../../', import.meta.url);
const examples = new URL('examples/', root);
/** Inside of the package, so that 'holdfast' is the package itself. */
const scratch = new URL(`.cache/readme-${process.pid}/`, root);

/** How to run a block of the README: its file's extension, and what Node must load first. */
const LANGUAGES: Readonly<Record<string, { extension: string; flags: string[] }>> = {
  js: { extension: 'mjs', flags: [] },
  ts: { extension: 'ts', flags: ['--import', 'tsx'] },
};

/** Most blocks are fragments: they go on with the first one's `locks`, and with two functions of the reader's own. */
const PRELUDE = `
import { Holdfast } from 'holdfast';
const locks = new Holdfast('memory:');
const work = async () => {};
const save = async () => {};
`;

describe('examples print what their last lines say', async () => {
  const files = (await readdir(examples)).filter((file) => file.endsWith('.mjs'));
  test.each(files)('%s', async (file) => {
    const [, promised] = (await readFile(new URL(file, examples), 'utf8')).split('\n// Output:\n');
    expect(await output(new URL(file, examples))).toBe(promised!.replaceAll(/^\/\/ /gm, ''));
  });
});

describe('the README', async () => {
  beforeAll(() => mkdir(scratch, { recursive: true }));
  afterAll(() => rm(scratch, { recursive: true, force: true }));

  const readme = await readFile(new URL('README.md', root), 'utf8');
  const blocks = [...readme.matchAll(/^```(\w+)\n(.*?)^```$/gms)].map((match) => ({
    language: match[1]!,
    text: match[2]!,
    line: readme.slice(0, match.index).split('\n').length,
  }));
  const [first, ...others] = blocks.filter(({ language }) => language in LANGUAGES);

  test('its first block can be pasted into a file and prints what the next block says', async () => {
    const promised = blocks.find(({ language }) => language === 'text');
    expect(withoutTokens(await outputOf(first!))).toBe(withoutTokens(promised!.text));
  });

  test.each(others)('its block on line $line runs', async ({ text, ...block }) => {
    const alone = text.includes("from 'holdfast'");
    await outputOf({ ...block, text: alone ? text : `${PRELUDE}\n${text}\nawait locks.close();\n` });
  });
});

/** Writes the block to a file of its own and runs it. */
async function outputOf({ language, text, line }: { language: string; text: string; line: number }): Promise<string> {
  const { extension, flags } = LANGUAGES[language]!;
  const file = new URL(`line-${line}.${extension}`, scratch);
  await writeFile(file, text);
  return output(file, flags);
}

/** What the script prints; rejects where it fails or does not end. */
async function output(file: URL, flags: string[] = []): Promise<string> {
  const { stdout } = await run(process.execPath, [...flags, fileURLToPath(file)], { timeout: 50_000 });
  return stdout;
}

function withoutTokens(text: string): string {
  return text.replaceAll(/\d{16,}/g, 'TOKEN');
}
