/** Where the locks are, and which of them the processes around us hold already. */
import { createHash } from 'node:crypto';
import { mkdirSync } from 'node:fs';
import { homedir } from 'node:os';
import { isAbsolute, join, resolve } from 'node:path';
import { EXIT, Failure, usage } from './failure.js';
import type { Want } from './options.js';
import { quote } from './text.js';

type Environment = Readonly<Record<string, string | undefined>>;

/** `--url`, else `HOLDFAST_URL`, else a file of the user's own: locks between processes of one user need no server. */
export function engineUrl(url: string | undefined, env: Environment): string {
  const chosen = url ?? (env['HOLDFAST_URL'] || defaultUrl(env));
  // It works, as it does everywhere; but who expects a lock from it must not find out by an accident.
  if (/^memory:/i.test(chosen)) warn('locks of memory: are inside of this one process: they exclude nobody');
  return chosen;
}

function warn(message: string): void {
  process.emitWarning(message, 'HoldfastWarning');
}

function defaultUrl(env: Environment): string {
  const state = env['XDG_STATE_HOME'] ?? '';
  // The XDG specification: a relative path is invalid and to be ignored.
  const folder = join(isAbsolute(state) ? state : join(homedir(), '.local', 'state'), 'holdfast');
  try {
    // Nobody else may read who locks what, or put a file of theirs in its place.
    mkdirSync(folder, { recursive: true, mode: 0o700 });
  } catch (error) {
    const { code } = error as { code?: string };
    throw new Failure(
      EXIT.unreachable,
      'HOLDFAST_ENGINE',
      `the folder ${folder} can't be made (${code}); set HOLDFAST_URL`,
    );
  }
  return `sqlite:${join(folder, 'locks.db')}`;
}

/** Holds what the `holdfast run` processes around us hold: a JSON array of keys, the outermost first. */
const HELD = 'HOLDFAST_HELD';

export interface Nesting {
  /** For the child's environment. */
  readonly env: Readonly<Record<string, string>>;
}

/**
 * `holdfast run X` inside of `holdfast run X` would wait for its own end. Shared ones too: behind a writer that came in
 * between, the inner reader waits for the writer and the writer for the outer reader.
 */
export function enterNesting(name: string, want: Want, url: string, env: Environment): Nesting {
  const held = readHeld(env[HELD]);
  const key = `${want.kind === 'semaphore' ? 'semaphore' : 'lock'}:${place(url)}:${name}`;
  if (held.includes(key)) {
    throw usage(`${quote(name)} is held by the holdfast run that this one runs inside of: it would wait for itself`);
  }
  return { env: { [HELD]: JSON.stringify([...held, key]) } };
}

function readHeld(text: string | undefined): string[] {
  try {
    const held: unknown = JSON.parse(text ?? '[]');
    return Array.isArray(held) ? held.filter((key) => typeof key === 'string') : [];
  } catch {
    return [];
  }
}

/** The same for one engine, however its user, password or path were written; and nothing can be read from it. */
function place(url: string): string {
  const [, path] = /^sqlite:(.*)$/is.exec(url) ?? [];
  const bare = path === undefined ? url.replace(/:\/\/(?!\/)\S*@/, '://') : `sqlite:${resolve(path)}`;
  return createHash('sha256').update(bare).digest('hex').slice(0, 16);
}
