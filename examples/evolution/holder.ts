/** A holder in a process of its own (holder.mjs). */
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';
import { freeze, kill, signal } from '../../test/servers/processes.js';
import { boundToUs } from '../../test/servers/server.js';

const PROGRAM = fileURLToPath(new URL('holder.mjs', import.meta.url));

export class Holder implements AsyncDisposable {
  readonly #child: ChildProcess;

  constructor(url: string, name: string) {
    // Ended with us, even if it is frozen.
    const [command, ...args] = [...boundToUs(), process.execPath, PROGRAM, url, name] as const;
    this.#child = spawn(command, args, { stdio: ['ignore', 'inherit', 'inherit', 'ipc'] });
  }

  /** @returns its token. */
  async acquire(): Promise<bigint> {
    return BigInt((await this.#ask('acquire')) as string);
  }

  async held(): Promise<boolean> {
    return (await this.#ask('held')) as boolean;
  }

  async release(): Promise<boolean> {
    return (await this.#ask('release')) as boolean;
  }

  /** SIGSTOP: it does nothing any more, and knows nothing of that. */
  async freeze(): Promise<void> {
    await freeze(this.#pid);
  }

  thaw(): void {
    signal([this.#pid], 'SIGCONT');
  }

  /** SIGKILL: it can say nothing any more. */
  async kill(): Promise<void> {
    if (this.#child.exitCode === null && this.#child.signalCode === null) await kill(this.#pid);
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.kill();
  }

  get #pid(): number {
    return this.#child.pid!;
  }

  async #ask(what: string): Promise<unknown> {
    const answer = once(this.#child, 'message');
    this.#child.send(what);
    const [value] = (await answer) as [unknown];
    return value;
  }
}
