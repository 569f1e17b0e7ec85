/** The library installs no signal handlers; the command line is a program of its own and does. */
import { constants } from 'node:os';
import { EXIT } from './failure.js';

export type Signal = (typeof FORWARDED)[number];

const FORWARDED = ['SIGTERM', 'SIGINT', 'SIGHUP', 'SIGQUIT', 'SIGUSR1', 'SIGUSR2'] as const;

export function exitOfSignal(signal: NodeJS.Signals): number {
  return EXIT.signal + constants.signals[signal];
}

/** One receiver at a time: first the wait, then the child, then nobody. */
export class Signals implements Disposable {
  #receiver: (signal: Signal) => void = () => {};
  readonly #listener = (signal: NodeJS.Signals): void => this.#receiver(signal as Signal);

  constructor() {
    for (const signal of FORWARDED) process.on(signal, this.#listener);
  }

  to(receiver: (signal: Signal) => void): void {
    this.#receiver = receiver;
  }

  [Symbol.dispose](): void {
    for (const signal of FORWARDED) process.off(signal, this.#listener);
  }
}
