import { describe, expect, test } from 'vitest';
import { ConfigError } from '../../../src/core/errors.js';
import { loadPeer } from '../../../src/kit/peer.js';

const notFound = (code: string, message: string): Error => Object.assign(new Error(message), { code });

describe('an optional client library', () => {
  test('is what its import gives', async () => {
    const path = await loadPeer('node:path', () => import('node:path'));
    expect(path.posix.join('a', 'b')).toBe('a/b');
  });

  test('that is not installed gives a ConfigError with the command to run', async () => {
    const name = 'holdfast-no-such-peer';
    const loading = loadPeer(name, () => import(/* @vite-ignore */ name));
    await expect(loading).rejects.toBeInstanceOf(ConfigError);
    await expect(loading).rejects.toThrow(`npm install ${name}`);
  });

  test.each([
    ['import', notFound('ERR_MODULE_NOT_FOUND', "Cannot find package '@scope/db' imported from /app/index.js")],
    ['require', notFound('MODULE_NOT_FOUND', "Cannot find module '@scope/db'\nRequire stack:\n- /app/index.js")],
    ['a subpath', notFound('MODULE_NOT_FOUND', "Cannot find module '@scope/db/promise'\nRequire stack:\n- /app/x.js")],
  ])('is recognised as missing whoever loads it: %s', async (_, error) => {
    const loading = loadPeer('@scope/db', () => Promise.reject(error));
    await expect(loading).rejects.toThrow('npm install @scope/db');
  });

  test.each([
    ['its own error', new SyntaxError('broken build')],
    [
      'a module that the library itself lacks',
      notFound('MODULE_NOT_FOUND', "Cannot find module 'denque'\n- /x/db/a.js"),
    ],
    ['not even an error', 'thrown string'],
    ['nothing at all', undefined],
  ])('that fails otherwise fails as it is: %s', async (_, error) => {
    await expect(loadPeer('db', () => Promise.reject(error))).rejects.toBe(error);
  });
});
