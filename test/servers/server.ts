/**
 * A real server as a child of the test process: loopback only, on a port and in a folder of its own.
 *
 *     <tmp>/holdfast-redis-Xb3k/data   the server's working directory; survives kill() and restart()
 *     <tmp>/holdfast-redis-Xb3k/log    all it printed; shown in the error when it does not get ready, and kept then
 *
 *     startServer ──> running ──pause()/resume()──> running ──kill()──> dead ──restart()──> running ──stop()──> gone
 *
 * It never outlives the test process: an exit handler ends it, and where the handler can't run (the process itself was
 * killed) the kernel does, by the parent death signal that setpriv (util-linux) sets. Only its folder may stay then.
 */
import { type ChildProcess, spawn, spawnSync } from 'node:child_process';
import { rmSync } from 'node:fs';
import { chmod, mkdir, mkdtemp, open, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Host } from './network.js';
import { freePort, isFree, isServedBy, LOOPBACK } from './ports.js';
import { ended, familyOf, freeze, isRunning, kill, killNow, signal } from './processes.js';
import type { Program } from './provide.js';
import { waitFor } from './wait.js';

const LOG_LINES_SHOWN = 20;
/** Losing the race for a port once is rare; five times in a row means something else. */
const PORTS_TRIED = 5;
/** How long a restart waits for its port, which a connection of somebody else may use for a moment. */
const PORT_WAIT_MS = 30_000;

/** What the arguments of a server are made of. */
export interface Place {
  /** The address to listen on. */
  readonly host: string;
  readonly port: number;
  /** Empty at the first start. */
  readonly data: string;
}

export interface ServerOptions {
  /** For the folder's name and for errors. */
  readonly name: string;
  readonly program: Program;
  readonly args: (place: Place) => readonly string[];
  /** More variables of its environment; they win over the program's own. Default: none. */
  readonly env?: Readonly<Record<string, string>>;
  /** One look: true when it serves. False or a rejection means not yet. */
  readonly ready: (place: Place) => Promise<boolean>;
  /** Before every start, also after a crash: make the data folder's content, remove lock files. Default: nothing. */
  readonly prepare?: (place: Place) => Promise<void>;
  /** Default: 30 seconds, which even a machine with much else to do keeps: it is for those that never get ready. */
  readonly readyWithinMs?: number;
  /** The clean way to end it. Default: SIGTERM. */
  readonly stopSignal?: NodeJS.Signals;
  /** It is killed when it has not ended by then. Default: 10 seconds. */
  readonly stopWithinMs?: number;
  /** Where it runs. Default: here, on loopback. */
  readonly host?: Host | undefined;
  /** Default: one that the kernel chooses. Asked again when another process was quicker to take it. */
  readonly choosePort?: () => Promise<number>;
}

/** Starts it and waits until it serves. */
export async function startServer(options: ServerOptions): Promise<Server> {
  for (let attempt = 1; ; attempt += 1) {
    const port = await (options.choosePort ?? freePort)();
    const folder = await mkdtemp(join(tmpdir(), `holdfast-${options.name}-`));
    const server = new Server(options, port, folder);
    try {
      await server.start();
      return server;
    } catch (error) {
      if (!(error instanceof PortTaken) || attempt === PORTS_TRIED) throw error;
      await server.stop();
    }
  }
}

class PortTaken extends Error {}

/** All that have a folder, running or not. */
const started = new Set<Server>();

process.once('exit', () => {
  for (const server of started) server.endNow();
});

export class Server {
  readonly name: string;
  /** Its address. */
  readonly host: string;
  readonly port: number;
  readonly folder: string;
  readonly #options: ServerOptions;
  #child: ChildProcess | undefined;
  #spawnError: Error | undefined;

  constructor(options: ServerOptions, port: number, folder: string) {
    this.#options = options;
    this.name = options.name;
    this.host = options.host?.address ?? LOOPBACK;
    this.port = port;
    this.folder = folder;
  }

  /** Of the running server, or of the last one. */
  get pid(): number {
    const pid = this.#child?.pid;
    if (pid === undefined) throw new Error(`${this.name} never started`);
    return pid;
  }

  get running(): boolean {
    const child = this.#child;
    // Once its exit is collected the id may belong to another process.
    if (child?.pid === undefined || child.exitCode !== null || child.signalCode !== null) return false;
    return isRunning(child.pid);
  }

  /** The first time it is `startServer` that calls this; later, `restart`. */
  async start(): Promise<void> {
    started.add(this);
    const data = join(this.folder, 'data');
    await mkdir(data, { recursive: true });
    // Servers that refuse to run as root run as somebody who has to get through to their data.
    await chmod(this.folder, 0o711);
    const place: Place = { host: this.host, port: this.port, data };
    await this.#options.prepare?.(place);
    await this.#spawn(place);
    await this.#becomeReady(place);
  }

  /** Ends it if it runs, cleanly, and starts it again: same data, same port, another process. */
  async restart(): Promise<void> {
    await this.#end();
    await waitFor(() => isFree(this.port), PORT_WAIT_MS);
    await this.start();
  }

  /** Ends it cleanly, paused or not, and removes its folder. */
  async stop(): Promise<void> {
    await this.#end();
    await rm(this.folder, { recursive: true, force: true });
    started.delete(this);
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.stop();
  }

  /** A crash (SIGKILL). The data stays for restart(). */
  async kill(): Promise<void> {
    if (this.running) await kill(this.pid);
  }

  /** A hang (SIGSTOP): connections are still accepted by the kernel, and nothing answers. */
  async pause(): Promise<void> {
    this.#mustRun('pause');
    await freeze(this.pid);
  }

  resume(): void {
    this.#mustRun('resume');
    signal(familyOf(this.pid), 'SIGCONT');
  }

  /** For the exit of the test process, where nothing can be awaited. */
  endNow(): void {
    if (this.running) killNow(this.pid);
    rmSync(this.folder, { recursive: true, force: true });
  }

  get #log(): string {
    return join(this.folder, 'log');
  }

  #mustRun(what: string): void {
    if (!this.running) throw new Error(`can't ${what} ${this.name}: it does not run`);
  }

  async #spawn(place: Place): Promise<void> {
    const { command, args, env } = this.#options.program;
    const log = await open(this.#log, 'a');
    try {
      const words = [
        ...boundToUs(),
        ...(this.#options.host?.enter ?? []),
        command,
        ...args,
        ...this.#options.args(place),
      ];
      const child = spawn(words[0] ?? command, words.slice(1), {
        cwd: place.data,
        env: { ...process.env, ...env, ...this.#options.env },
        stdio: ['ignore', log.fd, log.fd],
      });
      // A program that can't be run looks like one that ended at once, but for this.
      child.once('error', (error) => {
        this.#spawnError = error;
      });
      // A forgotten server must not keep the process from its exit, which is what ends the server.
      child.unref();
      this.#child = child;
    } finally {
      await log.close();
    }
  }

  async #becomeReady(place: Place): Promise<void> {
    const withinMs = this.#options.readyWithinMs ?? 30_000;
    const serves = async (): Promise<boolean> =>
      (await this.#options.ready(place)) && isServedBy(familyOf(this.pid), this.port);
    let ready = false;
    await waitFor(async () => {
      ready = this.running && (await serves().catch(() => false));
      return ready || !this.running;
    }, withinMs);
    if (ready) return;
    const ended = !this.running;
    await this.kill();
    // Its log is wanted now, so the exit of this process leaves the folder alone; stop() still removes it.
    started.delete(this);
    const log = await this.#readLog();
    const taken = ended && (/address already in use|EADDRINUSE/i.test(log) || !(await isFree(this.port)));
    const what = ended ? 'ended before it was ready' : `was not ready within ${withinMs} ms`;
    const tail = log.trimEnd().split('\n').slice(-LOG_LINES_SHOWN).join('\n');
    const message = `${this.name} on port ${this.port} ${what}. The end of ${this.#log}:\n${tail}`;
    if (taken) throw new PortTaken(message);
    throw new Error(message, this.#spawnError && { cause: this.#spawnError });
  }

  async #end(): Promise<void> {
    if (!this.running) return;
    const family = familyOf(this.pid);
    signal([this.pid], this.#options.stopSignal ?? 'SIGTERM');
    // One that is paused gets the signal above only when it goes on.
    signal(family, 'SIGCONT');
    await waitFor(() => !this.running, this.#options.stopWithinMs ?? 10_000);
    if (this.running) await kill(this.pid);
    // What it forked and did not wait for is nobody's child by now.
    await ended(family);
  }

  async #readLog(): Promise<string> {
    return readFile(this.#log, 'utf8').catch(() => '');
  }
}

/** The words before a command that make the kernel end it with us. They exec it, so the process id stays the same. */
export function boundToUs(): readonly string[] {
  const [command, ...args] = ['setpriv', '--pdeathsig', 'KILL', '--'] as const;
  // Not every system has it, and not every setpriv (busybox) knows the option.
  canBind ??= spawnSync(command, [...args, 'true'], { stdio: 'ignore' }).status === 0;
  return canBind ? [command, ...args] : [];
}

let canBind: boolean | undefined;
