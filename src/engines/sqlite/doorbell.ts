/**
 * How a waiter is woken. Whoever grants a claim rings its session's bell; only that one process wakes up.
 *
 * A bell is a local socket whose name is made of the session's id: on Linux in the abstract namespace, on Windows a named pipe.
 * Both leave nothing behind when their process is killed. A watch on the file was rejected: it wakes everybody with every beat
 * of anybody, which is what 200 waiters can't afford.
 *
 * A ring is only a hint to look. Anybody may ring, and it tells nothing. One that is lost, because the process is in another
 * network namespace, or the system has no such sockets (macOS), costs the time until the next look: see engine.ts.
 */
import { createHash } from 'node:crypto';
import { connect, createServer, type Server } from 'node:net';

const PREFIX: Partial<Record<NodeJS.Platform, string>> = {
  linux: '\0holdfast-',
  win32: '\\\\.\\pipe\\holdfast-',
};

/** The session's id is a secret, and names of sockets are not. */
function addressOf(session: string): string | undefined {
  const prefix = PREFIX[process.platform];
  return prefix && prefix + createHash('sha256').update(session).digest('base64url');
}

export class Doorbell {
  readonly #server: Server | undefined;
  #works = false;

  /** @param heard called with every ring, and once when the bell begins to work: what came before went unheard. */
  constructor(session: string, heard: () => void) {
    const address = addressOf(session);
    if (address === undefined) return;
    this.#server = createServer((visitor) => {
      visitor.destroy();
      heard();
    });
    this.#server.on('error', () => (this.#works = false));
    this.#server.listen(address, () => {
      this.#works = true;
      heard();
    });
    this.#server.unref();
  }

  /** Without it, whoever waits must look more often. */
  get works(): boolean {
    return this.#works;
  }

  close(): void {
    this.#works = false;
    this.#server?.close();
  }
}

/** Wakes a session, if it has a bell. The system has it before this returns, even if our process ends at once. */
export function ring(session: string): void {
  const address = addressOf(session);
  if (address === undefined) return;
  const visit = connect(address);
  visit.unref();
  visit.on('error', () => {
    // Nobody is there, or not in our network namespace: then it finds its grant by itself.
  });
  visit.on('connect', () => visit.destroy());
}
