/** Real processes of the command line, with a state directory of their own. */
import { type ChildProcess, spawn } from 'node:child_process';
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { type ClaimView, Holdfast } from '../../../src/index.js';

export const MAIN = fileURLToPath(new URL('../../../dist/cli/main.js', import.meta.url));

export interface Ended {
  readonly code: number | null;
  readonly stdout: string;
  readonly stderr: string;
}

export interface Started {
  readonly child: ChildProcess;
  readonly ended: Promise<Ended>;
  /** What has come so far. */
  readonly stdout: () => string;
}

export interface StartOptions {
  readonly stdin?: string;
  /** stdin stays open, for the test to write to. */
  readonly interactive?: boolean;
  readonly env?: Readonly<Record<string, string>>;
}

export class Sandbox implements AsyncDisposable {
  readonly folder = mkdtempSync(join(tmpdir(), 'holdfast-cli-'));
  readonly file = join(this.folder, 'holdfast', 'locks.db');
  readonly #started: Started[] = [];
  #observer: Holdfast | undefined;

  path(name: string): string {
    return join(this.folder, name);
  }

  /** What a command has written there so far. */
  text(name: string): string {
    return existsSync(this.path(name)) ? readFileSync(this.path(name), 'utf8') : '';
  }

  /** Makes a file that a command waits for. */
  write(name: string, text = ''): void {
    writeFileSync(this.path(name), text);
  }

  start(args: readonly string[], options?: StartOptions): Started {
    return this.startCommand(process.execPath, [MAIN, ...args], options);
  }

  startCommand(file: string, args: readonly string[], { stdin, interactive, env }: StartOptions = {}): Started {
    const { HOLDFAST_URL: _url, HOLDFAST_HELD: _held, ...outer } = process.env;
    const child = spawn(file, args, {
      env: { ...outer, XDG_STATE_HOME: this.folder, ...env },
      // Away from the terminal that the tests may have been started at.
      detached: true,
      stdio: [stdin === undefined && !interactive ? 'ignore' : 'pipe', 'pipe', 'pipe'],
    });
    if (!interactive) child.stdin?.end(stdin);
    let stdout = '';
    let stderr = '';
    child.stdout!.on('data', (chunk) => (stdout += chunk));
    child.stderr!.on('data', (chunk) => (stderr += chunk));
    // Not 'close': what a killed command line leaves behind may keep the pipes open. But all that was written before the
    // exit lies in the pipes: a turn of the event loop that reads nothing has come after the last of it.
    const ended = new Promise<Ended>((resolve) => {
      const drained = async (code: number | null): Promise<void> => {
        for (let read = -1; read < stdout.length + stderr.length;) {
          read = stdout.length + stderr.length;
          await turnOfLoop();
          await turnOfLoop();
        }
        resolve({ code, stdout, stderr });
      };
      child.once('exit', (code) => void drained(code));
    });
    const started = { child, ended, stdout: () => stdout };
    this.#started.push(started);
    return started;
  }

  run(args: readonly string[], options?: StartOptions): Promise<Ended> {
    return this.start(args, options).ended;
  }

  /** A run whose command is a shell script; resolves when the script is under way. */
  async hold(name: string, options: readonly string[] = [], script = 'sleep 1000'): Promise<Started & { pid: number }> {
    const before = this.#started.length;
    const mark = `started-${before}`;
    const holder = this.start([
      'run',
      name,
      ...options,
      '--',
      'sh',
      '-c',
      `echo $$ > "$XDG_STATE_HOME/${mark}"; ${script}`,
    ]);
    let early: Ended | undefined;
    void holder.ended.then((ended) => (early = ended));
    await until(() => this.text(mark).endsWith('\n') || early !== undefined);
    if (!this.text(mark)) throw new Error(`The run ended before its command began (${early!.code}): ${early!.stderr}`);
    return { ...holder, pid: Number(this.text(mark)) };
  }

  /** The claims on a name, as another process sees them. */
  async claims(name: string): Promise<readonly ClaimView[]> {
    // The ttl only says how long an answer may take: on a machine that starts twenty processes at once, seconds.
    this.#observer ??= new Holdfast(`sqlite:${this.file}`, { ttl: '3m' });
    for await (const line of this.#observer.inspect({ name })) return line.claims;
    return [];
  }

  async waiters(name: string, count: number): Promise<void> {
    await until(async () => (await this.claims(name)).filter(({ state }) => state === 'waiting').length === count);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const { child } of this.#started) child.kill('SIGKILL');
    await Promise.all(this.#started.map(({ ended }) => ended));
    await this.#observer?.close();
    for (let at = 0; at < this.#started.length; at++) killGroup(Number(this.text(`started-${at}`)));
    rmSync(this.folder, { recursive: true, force: true });
  }
}

/** Two of them have a whole look at all pipes in between. */
function turnOfLoop(): Promise<void> {
  return new Promise((resolve) => setImmediate(resolve));
}

/** What `hold` has started leads a group of its own. */
function killGroup(pid: number): void {
  if (!(pid > 1)) return;
  try {
    process.kill(-pid, 'SIGKILL');
  } catch {
    // Gone already, as it should be.
  }
}

/** The tests' own timeout ends a wait that is in vain. */
export async function until(condition: () => boolean | Promise<boolean>): Promise<void> {
  while (!(await condition())) await new Promise((resolve) => setTimeout(resolve, 10));
}

/** Shell code that writes those of the processes in a file of pids that can still do anything. */
export function stillAlive(pids: string): string {
  return `for p in $(cat ${pids}); do case "$(ps -o stat= -p $p)" in ''|Z*) ;; *) echo "alive $p" ;; esac; done`;
}
