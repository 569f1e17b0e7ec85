import type { Family } from './family.js';
import type { ChildGuard } from './guard.js';

/** What stops a job: Ctrl-Z, or the use of a terminal that is another's for now. */
const STOPS = ['SIGTSTP', 'SIGTTIN', 'SIGTTOU'] as const;
/** At a terminal the command hears it too. An editor or a pager puts the screen in order before it stops. */
const TIDY_MS = 100;

/**
 * We stop, and the command with us: without our beats it would work on without the lock. A terminal stops one process group, so those
 * of the command's processes that are in another one, or in another session, do not hear it. When we go on, they do only if the lock
 * is still ours. At a terminal the shell lets our own group go on; then we kill it as soon as we see that the lock is lost.
 */
export class StopTogether implements Disposable {
  readonly #tidyMs: number;
  /** Undefined while it starts: a stop waits until there is somebody to stop with us. */
  #command: { readonly family: Family; readonly guard: ChildGuard } | undefined;
  #wanted = false;
  #timer: NodeJS.Timeout | undefined;

  constructor({ ownSession }: { ownSession: boolean }) {
    this.#tidyMs = ownSession ? 0 : TIDY_MS;
    for (const signal of STOPS) process.on(signal, this.#stop);
    process.on('SIGCONT', this.#goOn);
  }

  with(family: Family, guard: ChildGuard): void {
    this.#command = { family, guard };
    if (this.#wanted) this.#stop();
  }

  readonly #stop = (): void => {
    this.#wanted = !this.#command;
    if (!this.#command) return;
    const { family } = this.#command;
    this.#timer ??= setTimeout(() => {
      this.#timer = undefined;
      family.signal('SIGSTOP');
      process.kill(process.pid, 'SIGSTOP');
    }, this.#tidyMs);
  };

  readonly #goOn = (): void => {
    if (!this.#command) return;
    const { family, guard } = this.#command;
    void guard.judge().then((ours) => ours && family.signal('SIGCONT'));
  };

  [Symbol.dispose](): void {
    clearTimeout(this.#timer);
    for (const signal of STOPS) process.off(signal, this.#stop);
    process.off('SIGCONT', this.#goOn);
  }
}
