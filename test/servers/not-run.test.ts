import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { afterAll, expect, test } from 'vitest';
import { MISSING_FILE, filesNotRun } from './not-run.js';

const root = mkdtempSync(join(tmpdir(), 'holdfast-not-run-'));
afterAll(() => rmSync(root, { recursive: true }));

function write(file: string, text: string): void {
  mkdirSync(dirname(join(root, file)), { recursive: true });
  writeFileSync(join(root, file), text);
}

write('test/servers/redis.ts', `import { startServer } from './server.js';\n`);
write('test/servers/etcd.ts', '');
write('test/servers/sentinel.ts', `export { startRedis } from './redis.js';\n`);
write('test/direct.test.ts', `import { startRedis } from './servers/redis.js';\n`);
write('test/deep/far.test.ts', `import {\n  startSentinel,\n} from '../servers/sentinel.js';\n`);
write('test/types.test.ts', `import type { Redis } from './servers/redis.js';\n`);
write('test/other.test.ts', `import { startEtcd } from './servers/etcd.js';\n`);

test('where every server is there, every file runs', () => {
  expect(filesNotRun(root)).toEqual([]);
  write(MISSING_FILE, '{}');
  expect(filesNotRun(root)).toEqual([]);
});

test('where a server is missing, those files are not run that would start it, and the reason is told', () => {
  write(MISSING_FILE, JSON.stringify({ redis: 'It is not on PATH.' }));
  const [only, ...others] = filesNotRun(root);
  expect(others).toEqual([]);
  expect(only).toMatchObject({ server: 'redis', reason: 'It is not on PATH.' });
  expect([...only!.files].sort()).toEqual(['test/deep/far.test.ts', 'test/direct.test.ts']);
});
