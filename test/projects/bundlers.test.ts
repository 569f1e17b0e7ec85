/** A program of one engine is built though no other client library is installed, and runs. */
import { expect, test } from 'vitest';
import { COMMON_JS, HANDLER, MODULE } from './programs.js';
import { Project, type Tool, toolsOf } from './project.js';

interface Bundler extends Tool {
  readonly files: Readonly<Record<string, string>>;
  /** The tool and its arguments. */
  readonly build: readonly [string, ...string[]];
  /** What is run then. */
  readonly built: string;
}

const WEBPACK = `module.exports = {
  mode: 'production', target: 'node20', entry: './main.mjs', output: { filename: 'out.cjs', library: { type: 'commonjs2' } },
};`;
const VITE = `export default { build: { ssr: 'main.mjs', target: 'node20' }, ssr: { noExternal: true } };`;
const ROLLUP = `import resolve from '@rollup/plugin-node-resolve';
export default { input: 'main.mjs', plugins: [resolve()], output: { dir: 'out', entryFileNames: '[name].mjs' } };`;

const NEXT_LAYOUT = `export default ({ children }) => <html><body>{children}</body></html>;`;
/** Starts what was built, and asks it once. */
const NEXT_ONCE = `import { createServer } from 'node:http';
import next from 'next';
const app = next({ dev: false, dir: '.' });
await app.prepare();
const server = createServer(app.getRequestHandler()).listen(0, async () => {
  const answer = await fetch('http://localhost:' + server.address().port + '/locks');
  console.log(answer.status, await answer.text());
  process.exit(answer.status === 200 ? 0 : 1);
});`;

const BUNDLERS: readonly Bundler[] = [
  ...['esbuild@0.27', 'esbuild@latest'].flatMap((version): Bundler[] => [
    {
      name: `${version}, ES modules`,
      packages: [version],
      everyday: version.endsWith('latest'),
      files: { 'main.mjs': MODULE },
      build: ['esbuild', 'main.mjs', '--bundle', '--platform=node', '--format=esm', '--minify', '--outfile=out.mjs'],
      built: 'out.mjs',
    },
    {
      name: `${version}, CommonJS`,
      packages: [version],
      everyday: version.endsWith('latest'),
      files: { 'main.js': COMMON_JS },
      build: ['esbuild', 'main.js', '--bundle', '--platform=node', '--outfile=out.cjs'],
      built: 'out.cjs',
    },
  ]),
  {
    name: 'webpack@5',
    packages: ['webpack@5', 'webpack-cli@6'],
    files: { 'main.mjs': MODULE, 'webpack.config.cjs': WEBPACK },
    build: ['webpack', '--config', 'webpack.config.cjs'],
    built: 'dist/out.cjs',
  },
  {
    name: 'rollup@4',
    packages: ['rollup@4', '@rollup/plugin-node-resolve@latest'],
    files: { 'main.mjs': MODULE, 'rollup.config.mjs': ROLLUP },
    build: ['rollup', '-c'],
    built: 'out/main.mjs',
  },
  {
    name: 'vite@8, SSR',
    packages: ['vite@8'],
    files: { 'main.mjs': MODULE, 'vite.config.mjs': VITE },
    build: ['vite', 'build'],
    built: 'dist/main.mjs',
  },
  {
    name: '@vercel/ncc',
    packages: ['@vercel/ncc@latest'],
    files: { 'main.js': COMMON_JS },
    build: ['ncc', 'build', 'main.js', '-o', 'out'],
    built: 'out/index.js',
  },
  ...['next@15', 'next@16'].map((version): Bundler => ({
    name: `${version}, a route handler`,
    packages: [version, 'react@19', 'react-dom@19'],
    files: { 'app/layout.jsx': NEXT_LAYOUT, 'app/locks/route.js': HANDLER, 'once.mjs': NEXT_ONCE },
    build: ['next', 'build'],
    built: 'once.mjs',
  })),
  {
    name: 'bun build',
    packages: ['bun@latest'],
    files: { 'main.mjs': MODULE },
    build: ['bun', 'build', 'main.mjs', '--target=node', '--outfile=out.mjs'],
    built: 'out.mjs',
  },
];

test.each(toolsOf(BUNDLERS))('$name', async ({ packages, files, build, built }) => {
  using project = await Project.make(packages, files);
  await project.tool(...build);
  expect(await project.command(process.execPath, built)).toContain('locks work');
});
