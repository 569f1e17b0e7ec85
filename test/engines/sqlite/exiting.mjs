/** A process that ends while a thread of it is inside SQLite: all the time, so that it can't miss it. */
import { setTimeout } from 'node:timers/promises';
import { isMainThread, parentPort, Worker, workerData } from 'node:worker_threads';
import { DatabaseSync } from '@photostructure/sqlite';
import { tsImport } from 'tsx/esm/api';

const { Doorway, shutAtExit } = await tsImport('../../../src/engines/sqlite/doorway.ts', import.meta.url);

if (isMainThread) {
  const doorway = new Doorway();
  if (process.argv[2] === 'shut') shutAtExit(doorway);
  const worker = new Worker(new URL(import.meta.url), { workerData: doorway.memory });
  worker.once('message', () => void setTimeout(20).then(() => process.exit(7)));
} else {
  const doorway = new Doorway(workerData);
  const statement = new DatabaseSync(':memory:').prepare('SELECT 1 AS one');
  parentPort.postMessage('inside');
  for (;;) doorway.within(() => statement.all());
}
