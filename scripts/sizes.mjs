/** Budgets: what is downloaded, and what ends up in a bundle of a program that brings its own engine. */
import { execFileSync } from 'node:child_process';
import { resolve } from 'node:path';
import { gzipSync } from 'node:zlib';
import { rolldown } from 'rolldown';

const ROOT = resolve(import.meta.dirname, '..');

/**
 * In bytes. The aim for the core is 20,000: all of its features are reached by one class, so a bundler can leave nothing of it out.
 * What is said in errors is a tenth of it; elections, once, all() and registers are another.
 */
const sizes = {
  'the package': { is: packed(), most: 450_000 },
  'holdfast/core in a bundle, gzipped': { is: await bundled('dist/core.js'), most: 24_200 },
};

for (const [what, { is, most }] of Object.entries(sizes)) {
  console.log(`${what}: ${(is / 1_000).toFixed(1)} kB of at most ${most / 1_000} kB`);
  if (is > most) process.exitCode = 1;
}

function packed() {
  const said = execFileSync('npm', ['pack', '--dry-run', '--json', '--ignore-scripts'], { cwd: ROOT, maxBuffer: 1e8 });
  return Object.values(JSON.parse(said.toString()))[0].size;
}

/** By a bundler as it comes. esbuild makes it 1 % larger. */
async function bundled(entry) {
  const bundle = await rolldown({ input: resolve(ROOT, entry), platform: 'node', external: [/^node:/] });
  const { output } = await bundle.generate({ format: 'esm', minify: true });
  await bundle.close();
  return output.reduce((sum, { code }) => sum + gzipSync(code).length, 0);
}
