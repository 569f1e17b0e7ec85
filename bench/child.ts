/** A process beside the bench: it gets messages one at a time and answers each with one. */
import { type ChildProcess, fork } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';

export class Child {
  readonly #process: ChildProcess;

  private constructor(process: ChildProcess) {
    this.#process = process;
  }

  /** @param file in this folder; it calls `serve`. */
  static async start(file: string, setup: object): Promise<Child> {
    const path = join(import.meta.dirname, file);
    const child = new Child(fork(path, [JSON.stringify(setup)], { execArgv: ['--import', 'tsx'] }));
    await child.#answer();
    return child;
  }

  ask(message: string): Promise<unknown> {
    this.#process.send(message);
    return this.#answer();
  }

  async end(): Promise<void> {
    const ended = once(this.#process, 'exit');
    this.#process.disconnect();
    await ended;
  }

  async #answer(): Promise<unknown> {
    const failed = new AbortController();
    const ended = (code: number | null): void => failed.abort(new Error(`a process of the bench ended with ${code}`));
    this.#process.once('exit', ended);
    const [answer] = (await once(this.#process, 'message', { signal: failed.signal })) as unknown[];
    this.#process.off('exit', ended);
    return answer;
  }
}

export function setup(): unknown {
  return JSON.parse(process.argv[2]!);
}

/** Says that it is ready, and answers from then on. */
export function serve(answer: (message: string) => Promise<unknown>): void {
  process.on('message', (message) => {
    void answer(message as string).then((value) => process.send!(value ?? null));
  });
  process.once('disconnect', () => process.exit());
  process.send!('ready');
}
