/** Promises about whole processes: what keeps one alive, and how the package is loaded. */
import { execFile } from 'node:child_process';
import { cp, mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';

const ROOT = fileURLToPath(new URL('../..', import.meta.url));

/** The compiler takes seconds; on a machine where everything else runs too, a minute. */
const COMPILED_WITHIN_MS = 240_000;

let project: string;

/** A project that has the package, built from today's sources, in its node_modules. */
beforeAll(async () => {
  const cache = join(ROOT, '.cache');
  await mkdir(cache, { recursive: true });
  project = await mkdtemp(join(cache, 'process-'));
  const installed = join(project, 'node_modules/holdfast');
  await mkdir(installed, { recursive: true });
  // Without a name of its own it would be part of the package around it, and load what lies in that one's dist.
  await writeFile(join(project, 'package.json'), '{ "name": "holdfast-user", "private": true }');
  await cp(join(ROOT, 'package.json'), join(installed, 'package.json'));
  // The types are the business of `npm run check`.
  const compiling = ['-p', 'tsconfig.build.json', '--noCheck', '--outDir', join(installed, 'dist')];
  const compiled = await run(join(ROOT, 'node_modules/.bin/tsc'), compiling, ROOT, COMPILED_WITHIN_MS);
  expect(compiled).toMatchObject({ code: 0 });
}, COMPILED_WITHIN_MS);

afterAll(() => rm(project, { recursive: true, force: true }));

interface Ended {
  readonly code: number | string | null | undefined;
  readonly stdout: string;
  readonly stderr: string;
}

/** @param withinMs one that hangs is killed after this long, and its code is null then. */
function run(command: string, args: readonly string[], cwd: string, withinMs = 50_000): Promise<Ended> {
  return new Promise((resolve) => {
    execFile(command, args, { cwd, timeout: withinMs }, (error, stdout, stderr) => {
      resolve({ code: error ? error.code : 0, stdout, stderr });
    });
  });
}

let scripts = 0;

async function runScript(text: string, extension = 'mjs'): Promise<Ended> {
  scripts += 1;
  const file = join(project, `script${scripts}.${extension}`);
  await writeFile(file, text);
  return run(process.execPath, ['--unhandled-rejections=strict', file], project);
}

function expectGoodEnd(ended: Ended, stdout: string): void {
  expect({ code: ended.code, stdout: ended.stdout }, ended.stderr).toEqual({ code: 0, stdout: `${stdout}\n` });
  expect(ended.stderr).not.toMatch(/unhandled|unsettled|error/i);
}

describe('a process', () => {
  test('that holds a lock ends when it has nothing else to do', async () => {
    const ended = await runScript(`
      import { Holdfast } from 'holdfast';
      const locks = new Holdfast('memory:');
      const leases = await Promise.all([locks.mutex('m').acquire(), locks.semaphore('s', 3).acquire({ maxHold: '1h' })]);
      leases[0].signal;
      console.log(leases.every(({ held }) => held) ? 'held' : 'not held');
    `);
    expectGoodEnd(ended, 'held');
  });

  test('that waits for a lock lives until it has it', async () => {
    // Nothing but the pending acquire can keep this process: the timer that will release the lock does not.
    const ended = await runScript(`
      import { Holdfast } from 'holdfast';
      const lease = await new Holdfast('memory:').mutex('m').acquire();
      setTimeout(() => lease.release(), 200).unref();
      const mine = await new Holdfast('memory:').mutex('m').acquire();
      console.log(mine.token > lease.token ? 'granted' : 'wrong');
    `);
    expectGoodEnd(ended, 'granted');
  });

  test('that waited in vain ends after it', async () => {
    const ended = await runScript(`
      import { Holdfast } from 'holdfast';
      await new Holdfast('memory:').mutex('m').acquire();
      const other = new Holdfast('memory:');
      await other.ready();
      const outcome = async (promise) => promise.then(() => 'granted', (error) => error.code ?? error.message);
      const abort = new AbortController();
      const waiting = outcome(other.mutex('m').acquire({ signal: abort.signal }));
      console.log(await outcome(other.mutex('m').acquire({ timeout: 50 })), await other.mutex('m').tryAcquire());
      abort.abort(new Error('enough'));
      console.log(await waiting);
    `);
    expectGoodEnd(ended, 'HOLDFAST_TIMEOUT undefined\nenough');
  });

  test('whose event loop stalls for longer than its ttl loses its locks, and not one rejection is unhandled', async () => {
    const ended = await runScript(`
      import { Holdfast } from 'holdfast';
      const locks = new Holdfast('memory:', { ttl: '1s' });
      const stall = () => { for (const end = performance.now() + 1_100; performance.now() < end;); };
      const lease = await locks.mutex('a').acquire();
      const heard = [];
      lease.signal.addEventListener('abort', () => heard.push(lease.signal.reason.reason));
      await locks.mutex('b').acquire();
      const run = locks.mutex('c').run(() => stall());
      console.log(await run.catch((error) => error.code), lease.held, await lease.release(), heard.join());
      await locks.close();
    `);
    expectGoodEnd(ended, 'HOLDFAST_LOST false false expired');
  });

  test('that closes while others wait and work ends well', async () => {
    const ended = await runScript(`
      import { Holdfast } from 'holdfast';
      const locks = new Holdfast('memory:');
      const code = (error) => error.code;
      let running;
      await new Promise((started) => {
        running = locks.mutex('m').run((lease) => {
          started();
          return new Promise((resolve) => lease.signal.addEventListener('abort', resolve));
        });
      });
      const waiting = locks.mutex('m').acquire();
      const codes = Promise.all([running.catch(code), waiting.catch(code)]);
      await locks.close({ drain: 50 });
      console.log((await codes).join());
    `);
    expectGoodEnd(ended, 'HOLDFAST_LOST,HOLDFAST_CLOSED');
  });
});

describe('the package', () => {
  test('is loaded by require', async () => {
    const ended = await runScript(
      `
      const { Holdfast, LeaseLostError } = require('holdfast');
      const { memory } = require('holdfast/memory');
      new Holdfast(memory()).mutex('m').run((lease) => console.log(lease.held, LeaseLostError.name));
      `,
      'cjs',
    );
    expectGoodEnd(ended, 'true LeaseLostError');
  });

  test('is the same package by import and by require', async () => {
    const ended = await runScript(`
      import { createRequire } from 'node:module';
      import { ConfigError } from 'holdfast';
      console.log(createRequire(import.meta.url)('holdfast').ConfigError === ConfigError);
    `);
    expectGoodEnd(ended, 'true');
  });

  test('has no way in but its exports', async () => {
    const ended = await runScript(`
      const load = (name) => import(name).then(() => 'open', (error) => error.code);
      console.log(await load('holdfast/dist/core/keeper.js'), await load('holdfast/core/clock'));
    `);
    expectGoodEnd(ended, 'ERR_PACKAGE_PATH_NOT_EXPORTED ERR_PACKAGE_PATH_NOT_EXPORTED');
  });
});
