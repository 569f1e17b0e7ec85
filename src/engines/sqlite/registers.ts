/**
 * Registers must survive a power cut, so each change is synced to disk. A sync stalls whoever calls it for up to 200 ms,
 * and so does a checkpoint of the write-ahead log: both run in a thread of their own, with a connection of their own
 * (writer-thread.ts). It is started with the first change that needs it.
 */
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { Worker } from 'node:worker_threads';
import type { Fence, Fenced, RegisterEntry, Registers } from '../../core/engine.js';
import { EngineError } from '../../core/errors.js';
import { Date } from '../../core/real-time.js';
import type { Database, Statement } from './client/driver.js';
import { Doorway, shutAtExit } from './doorway.js';
import { patiently } from './patience.js';

/** As a path: webpack takes a URL for a file to be copied, and fails over the await in it. */
const WRITER_THREAD = join(dirname(fileURLToPath(import.meta.url)), 'writer-thread.js');

/** What the thread is asked to do. Tokens travel as text: they have 64 bits. */
export type Task =
  | {
      readonly kind: 'present';
      readonly namespace: string;
      readonly name: string;
      readonly mode: Fence['mode'];
      readonly token: string;
    }
  | {
      readonly kind: 'write';
      readonly namespace: string;
      readonly name: string;
      readonly value: string;
      readonly token: string;
      readonly keepMs: number | undefined;
    }
  | { readonly kind: 'checkpoint' };

export type WriterAnswer =
  { readonly ok: true; readonly row?: RegisterRow | undefined } | { readonly ok: false; readonly newest: string };

export interface RegisterRow {
  /** UTF-8. As text, SQLite would end it at its first NUL. */
  readonly value: Uint8Array | null;
  readonly token: bigint;
  readonly written: number;
}

export class RegisterWriter {
  readonly #path: string;
  #worker: Worker | undefined;
  #calls = new Map<number, { resolve: (answer: WriterAnswer) => void; reject: (error: Error) => void }>();
  #count = 0;

  constructor(path: string) {
    this.#path = path;
  }

  /** Async, so that it rejects where no thread can be started: who asks for a checkpoint has committed, and must not fail for it. */
  async do(task: Task): Promise<WriterAnswer> {
    const worker = this.#start();
    return await new Promise((resolve, reject) => {
      this.#count += 1;
      this.#calls.set(this.#count, { resolve, reject });
      worker.ref();
      worker.postMessage({ call: this.#count, task });
    });
  }

  async close(): Promise<void> {
    const worker = this.#worker;
    this.#worker = undefined;
    if (!worker) return;
    const ended = new Promise((resolve) => worker.once('exit', resolve));
    worker.ref();
    worker.postMessage('close');
    await ended;
  }

  #start(): Worker {
    if (this.#worker) return this.#worker;
    const doorway = new Doorway();
    const exit = shutAtExit(doorway);
    const worker = new Worker(WRITER_THREAD, {
      workerData: { path: this.#path, doorway: doorway.memory },
    });
    this.#worker = worker;
    worker.unref();
    worker.on('message', ({ call, answer, error }: { call: number; answer?: WriterAnswer; error?: string }) => {
      const waiting = this.#calls.get(call);
      this.#calls.delete(call);
      // While it is being closed, somebody waits for its end.
      if (this.#calls.size === 0 && this.#worker === worker) worker.unref();
      if (answer) waiting?.resolve(answer);
      else waiting?.reject(new EngineError(error ?? 'The writer thread failed.'));
    });
    const lost = (error: unknown): void => {
      if (this.#worker === worker) this.#worker = undefined;
      const calls = [...this.#calls.values()];
      this.#calls.clear();
      for (const { reject } of calls) reject(new EngineError('The writer thread has ended.', { cause: error }));
    };
    worker.on('error', lost);
    worker.on('exit', (code) => {
      exit.forget();
      lost(code);
    });
    return worker;
  }
}

export class SqliteRegisters implements Registers {
  readonly #path: string;
  readonly #namespace: string;
  readonly #writer: RegisterWriter;
  readonly #read: Statement;

  constructor(path: string, database: Database, namespace: string, writer: RegisterWriter) {
    this.#path = path;
    this.#namespace = namespace;
    this.#writer = writer;
    this.#read = database.prepare('SELECT value, token, written FROM register WHERE namespace = ? AND name = ?');
    this.#read.setReadBigInts(true);
  }

  async read(name: string, fence?: Fence): Promise<Fenced<RegisterEntry | undefined>> {
    const namespace = this.#namespace;
    if (!fence) {
      // With a rollback journal, whoever commits is in the way of those who read.
      const row = await patiently(this.#path, () => this.#read.get(namespace, name));
      return { ok: true, value: entry(row as RegisterRow | undefined) };
    }
    const answer = await this.#writer.do({
      kind: 'present',
      namespace,
      name,
      mode: fence.mode,
      token: `${fence.token}`,
    });
    return answer.ok ? { ok: true, value: entry(answer.row) } : { ok: false, newest: BigInt(answer.newest) };
  }

  async write(name: string, value: string, token: bigint, keepMs?: number): Promise<Fenced<void>> {
    const namespace = this.#namespace;
    const answer = await this.#writer.do({ kind: 'write', namespace, name, value, token: `${token}`, keepMs });
    return answer.ok ? { ok: true, value: undefined } : { ok: false, newest: BigInt(answer.newest) };
  }
}

/** Ages are of the wall clock, because a register outlives the boot. */
function entry(row: RegisterRow | undefined): RegisterEntry | undefined {
  if (!row?.value) return undefined;
  const { value, token, written } = row;
  return { value: Buffer.from(value).toString(), token, ageMs: Date.now() - written };
}
