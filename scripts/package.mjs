/**
 * Makes the package of what the compiler has put into dist.
 *
 * - The modules, bundled: one file for each entry, beside what they share. Three hundred small files cost a tenth of the package.
 * - The CommonJS form in dist/cjs, for tools that can't `require` ES modules: jest, ts-jest, older bundlers. Node.js itself takes
 *   the modules (`module-sync`). It is bundled in the same way, and has types of its own.
 * - No types that no entry leads to or that are `@internal`, and no comments in what is run: with them the package is twice as large.
 */
import { mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { dirname, join, relative, resolve } from 'node:path';
import { rolldown } from 'rolldown';
import { minifySync } from 'rolldown/utils';

const ROOT = resolve(import.meta.dirname, '..');
const DIST = join(ROOT, 'dist');
const COMMON_JS = join(DIST, 'cjs');
const { bin, exports, peerDependencies } = JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8'));
/** Named by its path alone: the thread of the SQLite engine. */
const WRITER_THREAD = './dist/engines/sqlite/writer-thread.js';
/**
 * One file for all of the core, and one for what engines are made of. What else is shared is cut by who shares it, so that no
 * engine leads a bundler to the imports of another.
 */
const SHARED = {
  groups: [
    { name: 'core', test: /[\\/]dist[\\/](?:(?:core|locks)[\\/]|(?:core|holdfast)\.js$)/ },
    { name: 'kit', test: /[\\/]dist[\\/](?:kit|sql)[\\/]/, minShareCount: 2 },
  ],
};
/** Nobody reads these. Errors and leases have their names by their brands. */
const SMALL = { compress: true, mangle: { toplevel: true }, codegen: { removeWhitespace: true } };
/** What runs for everybody, and stands in their stack traces, is as it was written, without its comments. */
const READABLE = { compress: false, mangle: false, codegen: { removeWhitespace: false } };
/** Of engines and fences, for their size: functions, classes and methods keep their names, and lines stay lines; what is private is short. */
const TRACEABLE = {
  compress: { keepNames: { function: true, class: true } },
  mangle: { toplevel: false, keepNames: true },
  codegen: { removeWhitespace: false },
};
const entries = Object.entries(exports).filter(([, target]) => target.require);

keepPublicTypes();
const commonJs = await commonJsForm();
const modules = await moduleForm();
for (const file of filesOf('.js')) rmSync(file);
write(DIST, modules);
for (const file of filesOf('.js')) slim(file);
write(COMMON_JS, commonJs);
await completeCommonJs();

function filesOf(ending) {
  const files = readdirSync(DIST, { recursive: true }).filter((file) => file.endsWith(ending));
  return files.map((file) => join(DIST, file));
}

function keepPublicTypes() {
  const known = new Set();
  for (const target of Object.values(exports))
    if (typeof target === 'object') follow(join(ROOT, typesOf(target)), known);
  for (const file of filesOf('.d.ts')) if (!known.has(file)) rmSync(file);
}

function typesOf(target) {
  return target.types ?? target.import.types;
}

function follow(file, known) {
  if (known.has(file)) return;
  known.add(file);
  for (const [, path] of readFileSync(file, 'utf8').matchAll(/(?:from |import\()['"](\.[^'"]+)\.js['"]/g))
    follow(resolve(dirname(file), `${path}.d.ts`), known);
}

async function moduleForm() {
  const targets = Object.values(exports).filter((target) => typeof target === 'object');
  const files = [
    ...targets.map((target) => target.default ?? target.import.default),
    ...Object.values(bin),
    WRITER_THREAD,
  ];
  const input = Object.fromEntries(files.map((file) => [file.replace(/^\.\/dist\/|\.js$/g, ''), join(ROOT, file)]));
  return bundled(input, [], { format: 'esm' });
}

async function commonJsForm() {
  const input = Object.fromEntries(
    entries.map(([path, target]) => [path === '.' ? 'index' : path.slice(2), join(ROOT, target.import.default)]),
  );
  // jest has no import() in CommonJS.
  return bundled(input, [requirePeers()], { format: 'cjs', dynamicImportInCjs: false, minify: SMALL, comments: false });
}

async function bundled(input, plugins, form) {
  const external = [/^node:/, ...Object.keys(peerDependencies)];
  const bundle = await rolldown({ input, platform: 'node', external, plugins: [withoutLuaComments(), ...plugins] });
  const { output } = await bundle.generate({ ...form, codeSplitting: SHARED, chunkFileNames: 'chunks/[name].js' });
  await bundle.close();
  return output;
}

function write(folder, output) {
  for (const { fileName, code } of output) {
    const file = join(folder, fileName);
    mkdirSync(dirname(file), { recursive: true });
    writeFileSync(file, code);
  }
}

async function completeCommonJs() {
  writeFileSync(join(COMMON_JS, 'package.json'), '{ "type": "commonjs" }\n');
  for (const [, target] of entries) writeFileSync(join(ROOT, target.require.types), await commonJsTypes(target));
  // A thread of its own is no module of jest's: it can load ES modules.
  writeFileSync(join(COMMON_JS, 'writer-thread.js'), "void import('../engines/sqlite/writer-thread.js');\n");
}

/** In both forms: Redis knows a script by its text, and both may be at work on one server. */
function withoutLuaComments() {
  const comment = /^ *-- .*\n/gm;
  return {
    name: 'without-lua-comments',
    transform: (code, id) => (/[\\/]engines[\\/]redis[\\/]/.test(id) ? { code: code.replace(comment, '') } : undefined),
  };
}

function slim(file) {
  const text = readFileSync(file, 'utf8');
  const [, interpreter = ''] = /^(#!.*\n)/.exec(text) ?? [];
  const { code, errors } = minifySync(file, text.slice(interpreter.length), {
    module: true,
    ...formOf(relative(DIST, file)),
  });
  if (errors.length > 0) throw new Error(`${file}: ${errors[0].message}`);
  writeFileSync(file, interpreter + code);
}

function formOf(file) {
  if (/^(cli|conformance)[\\/]/.test(file)) return SMALL;
  return /^(?:engines|fence|optimistic)[\\/]|^chunks[\\/](?!core)/.test(file) ? TRACEABLE : READABLE;
}

/** Straight into the try that stands around it: only then do bundlers see that a peer may be missing. */
function requirePeers() {
  const peers = Object.keys(peerDependencies);
  const imported = new RegExp(`await import\\((['"])(${peers.join('|')})\\1\\)`, 'g');
  return { name: 'require-peers', transform: (code) => ({ code: code.replace(imported, 'require($1$2$1)') }) };
}

/**
 * The types of the ES modules, said to be CommonJS: a class is the same whichever form it comes from. What the module exports is
 * asked of it; `export type *` would give all of it as types alone.
 */
async function commonJsTypes(target) {
  const file = join(ROOT, target.import.default);
  const specifier = relative(COMMON_JS, file).replaceAll('\\', '/');
  const mode = "with: { 'resolution-mode': 'import' }";
  const lines = [`export type * from '${specifier}' ${mode.replace(':', '')};`];
  for (const [name, value] of Object.entries(await import(file))) {
    const original = `import('${specifier}', { ${mode} }).${name}`;
    lines.push(`export declare const ${name}: typeof ${original};`);
    if (/^class\b/.test(String(value))) lines.push(`export type ${name} = ${original};`);
  }
  return `${lines.join('\n')}\n`;
}
