import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { Worker } from '../sqlite/processes.js';
import { Kit } from './kit.js';

const kit = new Kit();
/** Each increment is handed from process to process. */
const [PROCESSES, TIMES] = process.env['HOLDFAST_MATRIX'] === undefined ? [4, 50] : [8, 100];

for (const strategy of ['queue', 'advisory']) {
  test(`${strategy}: processes never lose an update: ${PROCESSES} × ${TIMES} increments of a plain file`, async () => {
    const folder = mkdtempSync(join(tmpdir(), 'holdfast-'));
    const file = join(folder, 'counter');
    writeFileSync(file, '0');
    const workers = Array.from({ length: PROCESSES }, () => new Worker());
    try {
      const url = `${kit.url}?strategy=${strategy}`;
      await Promise.all(workers.map((worker) => worker.ask('open', { url, ttl: '30s', label: 'counter' })));
      await Promise.all(workers.map((worker) => worker.ask('count', { name: 'counter', file, times: TIMES })));
      expect(readFileSync(file, 'utf8')).toBe(`${PROCESSES * TIMES}`);
    } finally {
      await Promise.all(workers.map((worker) => worker.end()));
      rmSync(folder, { recursive: true });
    }
  });
}
