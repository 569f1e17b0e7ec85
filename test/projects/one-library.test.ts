/** Both forms in one process, ES modules and CommonJS, are one library. */
import { expect, test } from 'vitest';
import { Project } from './project.js';

const PROGRAM = `
  import assert from 'node:assert/strict';
  import { createRequire } from 'node:module';
  import { Holdfast, HoldfastError, AcquireTimeoutError, EngineError } from 'holdfast';
  const require = createRequire(import.meta.url);
  const other = require('./node_modules/holdfast/dist/cjs/index.js');
  const { memory } = require('./node_modules/holdfast/dist/cjs/memory.js');
  assert.notEqual(Holdfast, other.Holdfast);

  const ours = new Holdfast('memory:', { ttl: '60s' });
  const theirs = new other.Holdfast('memory:', { ttl: '60s' });

  // One space.
  const lease = await theirs.mutex('a').acquire();
  const busy = await ours.mutex('a').acquire({ timeout: 0 }).catch((error) => error);

  // Errors of either are errors of both.
  assert(busy instanceof AcquireTimeoutError && busy instanceof other.AcquireTimeoutError);
  assert(busy instanceof HoldfastError && busy instanceof other.HoldfastError);
  assert(!(busy instanceof EngineError) && !(busy instanceof other.EngineError));
  class Mine extends HoldfastError {}
  assert(!(busy instanceof Mine) && new Mine('X', 'x') instanceof other.HoldfastError);

  // A lease of one is known to the other.
  await ours.register('a').set('v', lease);
  assert.equal((await theirs.register('a').get()).value, 'v');
  await lease.release();

  // An engine of one works in the other.
  const mixed = new Holdfast(memory());
  assert.equal(await mixed.mutex('a').tryAcquire().then((lease) => lease.release()), true);

  // One async context: who waits for what is known across them.
  const { promise: inside, resolve: isInside } = Promise.withResolvers?.() ?? defer();
  const { promise: asked, resolve: isAsked } = Promise.withResolvers?.() ?? defer();
  function defer() { let resolve; return { promise: new Promise((r) => (resolve = r)), resolve: (v) => resolve(v) }; }
  const first = ours.mutex('x').run(async () => {
    await inside;
    isAsked();
    return theirs.mutex('y').run(() => 'never');
  }).catch((error) => error.code);
  const second = theirs.mutex('y').run(async () => {
    isInside();
    await asked;
    return ours.mutex('x').run(() => 'never');
  }).catch((error) => error.code);
  assert((await Promise.all([first, second])).includes('HOLDFAST_DEADLOCK'));

  await Promise.all([ours.close(), theirs.close(), mixed.close()]);
  console.log('one library');
`;

test('ES modules and CommonJS in one process share locks, leases, errors and async contexts', async () => {
  using project = await Project.make([], { 'main.mjs': PROGRAM });
  expect(await project.command(process.execPath, 'main.mjs')).toContain('one library');
});

test('require gives the ES modules where Node can load them', async () => {
  using project = await Project.make([], {
    'main.cjs': `import('holdfast').then(({ Holdfast }) => console.log(require('holdfast').Holdfast === Holdfast));`,
  });
  expect(await project.command(process.execPath, 'main.cjs')).toContain('true');
});

/** Prints a hash of every script that the Redis engine and the fence of one form have in hand, in one order. */
const SCRIPTS = `
  const crypto = require('node:crypto');
  const { createHash } = crypto;
  const seen = [];
  crypto.createHash = (algorithm) => {
    const hash = createHash(algorithm);
    const { update } = hash;
    if (algorithm === 'sha1') hash.update = (text) => seen.push(createHash('md5').update(text).digest('hex')) && update.call(hash, text);
    return hash;
  };
  require('node:module').syncBuiltinESMExports();
  const folder = './node_modules/holdfast/dist/';
  const files = process.argv[2] === 'cjs' ? ['cjs/redis.js', 'cjs/fence.js'] : ['engines/redis/index.js', 'fence/index.js'];
  Promise.all(files.map((file) => import(folder + file))).then(() => console.log(seen.sort().join('\\n')));
`;

test('both forms send Redis the same scripts: a server keeps each once', async () => {
  using project = await Project.make([], { 'main.cjs': SCRIPTS });
  const [modules, commonJs] = await Promise.all(
    ['esm', 'cjs'].map((form) => project.command(process.execPath, 'main.cjs', form)),
  );
  expect(modules!.split('\n').length).toBeGreaterThan(10);
  expect(commonJs).toBe(modules);
});
