/** The library installs no signal handlers; the command line is a program of its own and does. */
import { constants } from 'node:os';
import { EXIT } from './failure.js';

export type Signal = (typeof FORWARDED)[number];

const ENDING = ['SIGTERM', 'SIGINT', 'SIGHUP', 'SIGQUIT'] as const;
const FORWARDED = [...ENDING, 'SIGUSR1', 'SIGUSR2'] as const;

/** Who asks a program to end. The other two are whatever the command makes of them. */
export function endsByDefault(signal: NodeJS.Signals): boolean {
  return (ENDING as readonly string[]).includes(signal);
}

export function exitOfSignal(signal: NodeJS.Signals): number {
  return EXIT.signal + constants.signals[signal];
}

/** One receiver at a time: first the wait, then the child, then the goodbye. */
export class Signals implements Disposable {
  #receiver: (signal: Signal) => void = () => {};
  readonly #listener = (signal: NodeJS.Signals): void => {
    if (!(this.#ignoreHangup && signal === 'SIGHUP')) this.#receiver(signal as Signal);
  };
  readonly #ignoreHangup: boolean;

  constructor({ ignoreHangup }: { ignoreHangup: boolean }) {
    this.#ignoreHangup = ignoreHangup;
    for (const signal of FORWARDED) process.on(signal, this.#listener);
  }

  to(receiver: (signal: Signal) => void): void {
    this.#receiver = receiver;
  }

  [Symbol.dispose](): void {
    for (const signal of FORWARDED) process.off(signal, this.#listener);
  }
}
