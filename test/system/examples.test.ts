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
const scratch = new URL(`.cache/pages-${process.pid}/`, root);

/** Those whose blocks are programs. What the others show needs a server, and has tests or examples of its own. */
const PAGES = ['choose', 'faq', 'guide', 'reference', 'runtimes', 'serverless', 'shutdown', 'testing'].map(
  (name) => `docs/${name}.md`,
);

/** How to run a block of a page: its file's extension, and what Node must load first. */
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

interface Block {
  readonly page: string;
  readonly language: string;
  readonly text: string;
  readonly line: number;
}

async function blocksOf(page: string): Promise<readonly Block[]> {
  const whole = await readFile(new URL(page, root), 'utf8');
  return [...whole.matchAll(/^```(\w+)\n(.*?)^```$/gms)].map((match) => ({
    page,
    language: match[1]!,
    text: match[2]!,
    line: whole.slice(0, match.index).split('\n').length,
  }));
}

beforeAll(() => mkdir(scratch, { recursive: true }));
afterAll(() => rm(scratch, { recursive: true, force: true }));

describe('the README', async () => {
  const blocks = await blocksOf('README.md');
  const [first, ...others] = blocks.filter(({ language }) => language in LANGUAGES);

  test('its first block can be pasted into a file and prints what the next block says', async () => {
    const promised = blocks.find(({ language }) => language === 'text');
    expect(withoutTokens(await outputOf(first!))).toBe(withoutTokens(promised!.text));
  });

  test.each(others)('its block on line $line runs', async (block) => {
    await outputOf(complete(block));
  });
});

describe('other pages', async () => {
  const blocks = (await Promise.all(PAGES.map(blocksOf))).flat().filter(({ language }) => language in LANGUAGES);

  test.each(blocks)('$page: its block on line $line runs', async (block) => {
    await outputOf(complete(block));
  });
});

/** A fragment with what it goes on with; a service is told to end. */
function complete({ text, ...block }: Block): Block {
  if (text.includes("'SIGTERM'")) return { ...block, text: `${text}\nprocess.kill(process.pid, 'SIGTERM');\n` };
  if (/from 'holdfast(\/core)?'/.test(text)) return { ...block, text };
  return { ...block, text: `${PRELUDE}\n${text}\nawait locks.close();\n` };
}

/** Writes the block to a file of its own and runs it. */
async function outputOf({ page, language, text, line }: Block): Promise<string> {
  const { extension, flags } = LANGUAGES[language]!;
  const file = new URL(`${page.replaceAll(/\W/g, '-')}-${line}.${extension}`, scratch);
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
