import { describe, expect, test } from 'vitest';
import { ConfigError } from '../../../src/core/errors.js';
import { exportsOf, notLoaded } from '../../../src/kit/peer.js';

const notFound = (code: string, message: string): Error => Object.assign(new Error(message), { code });

describe('an optional client library', () => {
  test('is what its import gives', () => {
    const module = { Redis: Map, default: Set };
    expect(exportsOf('ioredis', 'Redis', module)).toBe(module);
  });

  test('is the default of what a bundler made of CommonJS', () => {
    const whole = { Redis: Map };
    expect(exportsOf('ioredis', 'Redis', { default: whole } as unknown as typeof whole)).toBe(whole);
  });

  test('that lacks what is needed gives a ConfigError, which is not tried again', () => {
    const other = { default: { Cluster: Map } } as { Redis?: unknown };
    expect(() => exportsOf('ioredis', 'Redis', other)).toThrow(ConfigError);
    expect(() => exportsOf('ioredis', 'Redis', other)).toThrow('The package "ioredis" has no "Redis".');
  });

  test.each([[{}], [{ default: {} }]])(
    'a module that exports nothing, %j, stands for one that is missing',
    (module) => {
      expect(() => exportsOf('ioredis', 'Redis', module as { Redis?: unknown })).toThrow(
        'This engine needs the package "ioredis", which is not installed. Run: npm install ioredis',
      );
    },
  );

  test('that is not installed gives a ConfigError with the command to run', async () => {
    const name = 'holdfast-no-such-peer';
    const error: unknown = await import(/* @vite-ignore */ name).catch((thrown: unknown) => notLoaded(name, thrown));
    expect(error).toBeInstanceOf(ConfigError);
    expect((error as Error).message).toContain(`npm install ${name}`);
  });

  test.each([
    ['import', notFound('ERR_MODULE_NOT_FOUND', "Cannot find package '@scope/db' imported from /app/index.js")],
    ['require', notFound('MODULE_NOT_FOUND', "Cannot find module '@scope/db'\nRequire stack:\n- /app/index.js")],
    ['a subpath', notFound('MODULE_NOT_FOUND', "Cannot find module '@scope/db/promise'\nRequire stack:\n- /app/x.js")],
    ['Vite', new Error('Could not resolve "@scope/db" imported by "holdfast".')],
    ['Deno', notFound('ERR_MODULE_NOT_FOUND', 'Import "@scope/db" not a dependency')],
    [
      "Yarn's Plug'n'Play",
      notFound(
        'MODULE_NOT_FOUND',
        "holdfast tried to access @scope/db (a peer dependency) but it isn't provided by your application; this makes the require call ambiguous and unsound.",
      ),
    ],
  ])('is recognised as missing whoever loads it: %s', (_, error) => {
    expect(notLoaded('@scope/db', error).message).toContain('npm install @scope/db');
  });

  test.each([
    ['its own error', new SyntaxError('broken build'), 'could not be loaded: broken build'],
    [
      'a module that the library itself lacks',
      notFound('MODULE_NOT_FOUND', "Cannot find module 'denque'\n- /x/db/a.js"),
      "could not be loaded: Cannot find module 'denque'",
    ],
    ['not even an error', 'thrown string', 'could not be loaded: thrown string'],
    ['nothing at all', undefined, 'could not be loaded: undefined'],
  ])('that fails otherwise is told with its reason, and not tried again: %s', (_, error, told) => {
    expect(notLoaded('db', error)).toBeInstanceOf(ConfigError);
    expect(notLoaded('db', error).message).toContain(told);
  });
});
