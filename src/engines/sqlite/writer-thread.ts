/** The thread that may wait for the disk: see registers.ts. */
import { setTimeout } from 'node:timers/promises';
import { parentPort, workerData } from 'node:worker_threads';
import { isStale, newest } from '../../core/fence.js';
import { loadDriver, type Database } from './client/driver.js';
import { Doorway } from './doorway.js';
import { isBusy } from './errors.js';
import type { RegisterRow, Task, WriterAnswer } from './registers.js';
import { FORGET, openFile, rollBack } from './schema.js';

const { path, doorway: memory } = workerData as { path: string; doorway: SharedArrayBuffer };
const doorway = new Doorway(memory);
const database = await open();
// This thread may block, and must: a register that was said to be written is on the disk.
database.exec('PRAGMA busy_timeout = 10000; PRAGMA synchronous = FULL');

async function open(): Promise<Database> {
  const driver = await loadDriver();
  for (;;) {
    try {
      const opened = doorway.within(() => openFile(driver, path));
      if (opened) return opened;
    } catch (error) {
      if (!isBusy(error)) throw error;
    }
    await setTimeout(5);
  }
}

const read = prepare(
  'SELECT value, token, written, max_read, max_write FROM register WHERE namespace = ? AND name = ?',
);
const create = prepare('INSERT INTO register VALUES (?, ?, NULL, 0, 0, 0, 0, NULL) ON CONFLICT DO NOTHING');
const fence = prepare('UPDATE register SET max_read = ?, max_write = ? WHERE namespace = ? AND name = ?');
const write = prepare(
  'UPDATE register SET value = ?, token = ?, written = ?, kept_until = ? WHERE namespace = ? AND name = ?',
);
const forget = prepare(FORGET);

type FencedRow = RegisterRow & { readonly max_read: bigint; readonly max_write: bigint };

function prepare(sql: string): ReturnType<Database['prepare']> {
  const statement = database.prepare(sql);
  statement.setReadBigInts(true);
  return statement;
}

function present({ namespace, name, token: text, ...task }: Exclude<Task, { kind: 'checkpoint' }>): WriterAnswer {
  const token = BigInt(text);
  create.run(namespace, name);
  const row = read.get(namespace, name) as unknown as FencedRow;
  const { max_read: maxRead, max_write: maxWrite } = row;
  const reads = task.kind === 'present' && task.mode === 'read';
  if (isStale({ token, mode: reads ? 'read' : 'write' }, maxRead, maxWrite))
    return { ok: false, newest: `${newest(maxRead, maxWrite)}` };
  if (reads && token > maxRead) fence.run(token, maxWrite, namespace, name);
  if (!reads && token > maxWrite) fence.run(maxRead, token, namespace, name);
  if (task.kind === 'write') {
    const now = Date.now();
    const keptUntil = task.keepMs === undefined ? null : now + task.keepMs;
    write.run(Buffer.from(task.value), token, now, keptUntil, namespace, name);
    // Who adds one takes others away: so they do not pile up, however rarely somebody beats.
    if (keptUntil !== null) forget.run(now);
  }
  const { value, token: writtenWith, written } = row;
  return { ok: true, row: { value, token: writtenWith, written } };
}

function perform(task: Task): WriterAnswer {
  if (task.kind === 'checkpoint') {
    // PASSIVE: never in anybody's way; what it can't do now the next one does.
    database.exec('PRAGMA wal_checkpoint(PASSIVE)');
    return { ok: true };
  }
  database.exec('BEGIN IMMEDIATE');
  try {
    const answer = present(task);
    database.exec('COMMIT');
    return answer;
  } catch (error) {
    rollBack(database);
    throw error;
  }
}

function answer({ call, task }: { call: number; task: Task }): object | undefined {
  try {
    const answered = doorway.within(() => perform(task));
    return answered && { call, answer: answered };
  } catch (error) {
    return { call, error: error instanceof Error ? error.message : String(error) };
  }
}

parentPort!.on('message', (message: 'close' | { call: number; task: Task }) => {
  if (message === 'close') {
    doorway.within(() => database.close());
    endThread();
    return;
  }
  const answered = answer(message);
  if (answered) parentPort!.postMessage(answered);
});

/** Deno's port has no `close`; there, a thread ends itself as a web worker does. */
function endThread(): void {
  const port: { close?(): void } = parentPort!;
  if (port.close) port.close();
  else (globalThis as { close?(): void }).close?.();
}
