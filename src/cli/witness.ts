import { type ChildProcessByStdio, spawn } from 'node:child_process';
import type { Readable, Writable } from 'node:stream';

type Cat = ChildProcessByStdio<Writable, Readable, null>;

/** Ctrl-\ would leave the core of a process that nobody knows. */
const SCRIPT = 'ulimit -c 0; exec cat';

/**
 * Tells a signal that our whole process group got, as from the keyboard, from one that was sent to us alone: Node.js does not say who
 * has sent it. The witness is a cat(1) in our group. Whoever has a deadly signal never answers again, however slow the machine is, so
 * it either answers or ends. It is older than the command: what it has not heard the command has not heard either. It ends when we
 * do, because its input does.
 */
export class Witness {
  /** Undefined while a new one starts, and where there is none. */
  #cat: Cat | undefined;
  #asked: Promise<boolean> = Promise.resolve(false);

  constructor() {
    this.#cat = this.#start();
  }

  /** Whether the group got the signal that we got just now. True where that can't be told: twice is "by force" for many commands. */
  heard(): Promise<boolean> {
    // One after the other: an answer to the question before says nothing of what came since.
    this.#asked = this.#asked.then(() => this.#ask());
    return this.#asked;
  }

  #ask(): Promise<boolean> {
    const cat = this.#cat;
    if (!cat) return Promise.resolve(true);
    return new Promise((resolve) => {
      const told = (heard: boolean): void => {
        cat.off('exit', ended);
        cat.stdout.off('data', answered);
        resolve(heard);
      };
      const ended = (): void => told(true);
      const answered = (): void => told(false);
      cat.on('exit', ended);
      cat.stdout.on('data', answered);
      // Ctrl-Z stops it with us, but not everybody who lets us go on means the group.
      cat.kill('SIGCONT');
      cat.stdin.write('?');
    });
  }

  #start(): Cat {
    const cat = spawn('/bin/sh', ['-c', SCRIPT], { stdio: ['pipe', 'pipe', 'ignore'] });
    const gone = (_code?: unknown, signal?: unknown): void => {
      if (this.#cat === cat) this.#cat = undefined;
      // One that ended by itself could not be started, and the next could not either.
      if (typeof signal === 'string') this.#replace();
    };
    cat.once('exit', gone);
    cat.once('error', () => gone());
    cat.stdin.on('error', () => {});
    cat.stdout.resume();
    return cat;
  }

  /** A signal that came before the new one was there is none that it can tell of: by its first answer we have had it. */
  #replace(): void {
    const cat = this.#start();
    cat.stdout.once('data', () => (this.#cat = cat));
    cat.stdin.write('?');
  }
}
