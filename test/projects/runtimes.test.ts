/** Other runtimes than Node.js. What runs where is in docs/runtimes.md. */
import { expect, test } from 'vitest';
import { MODULE } from './programs.js';
import { Project, type Tool, toolsOf } from './project.js';

interface Runtime extends Tool {
  readonly run: readonly [string, ...string[]];
}

/** Registers, and the end of the thread that writes them. */
const SQLITE = `
  const files = new Holdfast('sqlite:./locks.db');
  if ((await files.once('job', { atLeast: '1h' }, () => 1)).ran !== true) throw new Error('not run');
  if ((await files.once('job', { atLeast: '1h' }, () => 1)).ran !== false) throw new Error('run twice');
  await files.close();
`;

const RUNTIMES: readonly Runtime[] = [
  { name: 'Bun', packages: ['bun@latest'], everyday: true, run: ['bun', 'main.mjs'] },
  { name: 'Deno', packages: ['deno@latest'], run: ['deno', 'run', '-A', 'main.mjs'] },
];

test.each(toolsOf(RUNTIMES))('$name', async ({ packages, run }) => {
  using project = await Project.make([...packages, '@photostructure/sqlite'], { 'main.mjs': MODULE + SQLITE });
  const said = await project.tool(...run);
  expect(said).toContain('locks work');
  expect(said).not.toContain('Uncaught');
});

/** What a bundle for the edge has: Holdfast without URLs, and one engine. */
const WORKER = `import { AcquireTimeoutError, Holdfast } from 'holdfast/core';
import { memory } from 'holdfast/memory';
export default {
  async fetch() {
    const locks = new Holdfast(memory());
    const lease = await locks.mutex('a').acquire();
    const late = await locks.mutex('a').acquire({ timeout: 50 }).catch((error) => error);
    if (!(late instanceof AcquireTimeoutError)) throw late;
    await lease.release();
    const done = await locks.once('job', {}, () => 'locks work');
    await locks.close();
    return new Response(done.value);
  },
};`;
const WORKERD = `import { Miniflare } from 'miniflare';
const worker = new Miniflare({
  modules: true,
  scriptPath: 'out.mjs',
  compatibilityDate: '2026-01-01',
  compatibilityFlags: ['nodejs_compat'],
});
const answer = await worker.dispatchFetch('http://localhost/');
console.log(answer.status, await answer.text());
await worker.dispose();`;

const EDGE: readonly Tool[] = [{ name: 'Cloudflare workerd, memory', packages: ['miniflare@4', 'esbuild@latest'] }];

test.each(toolsOf(EDGE))('$name', async ({ packages }) => {
  using project = await Project.make(packages, { 'worker.mjs': WORKER, 'main.mjs': WORKERD });
  await project.tool('esbuild', 'worker.mjs', '--bundle', '--format=esm', '--external:node:*', '--outfile=out.mjs');
  expect(await project.command(process.execPath, 'main.mjs')).toContain('200 locks work');
});
