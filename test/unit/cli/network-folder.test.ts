import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { fileOfOurOwn } from '../../../src/cli/private-file.js';

function newFolder(): string {
  const folder = mkdtempSync(join(tmpdir(), 'holdfast-network-'));
  onTestFinished(() => rmSync(folder, { recursive: true }));
  return folder;
}

test.for([
  [0x6969, 'NFS'],
  [0xff534d42, 'CIFS'],
  // Some platforms give it with its sign.
  [0xff534d42 | 0, 'CIFS'],
  [0xfe534d42, 'SMB2'],
] as const)('a file system of type %i, which is %s, is refused with 69', ([type, name]) => {
  const refused = expect.objectContaining({
    exit: 69,
    message: expect.stringContaining(`network file system (${name})`),
  });
  expect(() => fileOfOurOwn(newFolder(), 'locks.db', () => ({ type }))).toThrow(refused);
});

function untold(): never {
  throw new Error('ENOSYS');
}

test('a local one is not, nor one that can’t be told', () => {
  const folder = newFolder();
  expect(fileOfOurOwn(folder, 'locks.db', () => ({ type: 0xef53 }))).toBe(join(folder, 'locks.db'));
  expect(fileOfOurOwn(folder, 'locks.db', untold)).toBe(join(folder, 'locks.db'));
});
