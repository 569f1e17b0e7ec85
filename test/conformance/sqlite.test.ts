import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { sqlite } from 'holdfast/sqlite';
import { conformance } from 'holdfast/conformance';
import { afterAll, test } from 'vitest';

const folder = mkdtempSync(join(tmpdir(), 'holdfast-'));
afterAll(() => rmSync(folder, { recursive: true }));

conformance({ test: test.concurrent, engine: 'sqlite', source: () => sqlite(join(folder, 'locks.db')) });
