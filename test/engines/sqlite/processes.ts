import { type ChildProcess, fork, type ForkOptions } from 'node:child_process';
import { join } from 'node:path';

/** A process of its own that locks: it can be killed, stopped and continued. */
export class Worker {
  readonly child: ChildProcess;
  readonly #calls = new Map<number, { resolve: (value: unknown) => void; reject: (error: Error) => void }>();
  #count = 0;

  constructor(options: ForkOptions = {}) {
    this.child = fork(join(import.meta.dirname, 'worker.mjs'), { ...options, serialization: 'json' });
    this.child.on(
      'message',
      ({ call, ok, error }: { call: number; ok?: unknown; error?: { code: string; message: string } }) => {
        const waiting = this.#calls.get(call);
        this.#calls.delete(call);
        if (error) waiting?.reject(Object.assign(new Error(error.message), { code: error.code }));
        else waiting?.resolve(ok);
      },
    );
    this.child.once('exit', () => {
      for (const { reject } of this.#calls.values()) reject(new Error('the process has ended'));
    });
  }

  ask<T>(action: string, args?: object): Promise<T> {
    this.#count += 1;
    const call = this.#count;
    const answer = new Promise<T>((resolve, reject) => {
      this.#calls.set(call, { resolve: resolve as (value: unknown) => void, reject });
    });
    this.child.send({ call, action, args });
    return answer;
  }

  signal(name: NodeJS.Signals): void {
    this.child.kill(name);
  }

  async end(): Promise<void> {
    if (this.child.exitCode !== null || this.child.signalCode !== null) return;
    const ended = new Promise((resolve) => this.child.once('exit', resolve));
    this.child.kill('SIGKILL');
    await ended;
  }
}
