/** Where the locks are. */
import { homedir, userInfo } from 'node:os';
import { isAbsolute, join } from 'node:path';
import { fileOfOurOwn } from './private-file.js';

/** `--url`, else `HOLDFAST_URL`, else a file of the user's own: locks between processes of one user need no server. */
export function engineUrl(url: string | undefined, env: NodeJS.ProcessEnv): string {
  const chosen = url ?? (env['HOLDFAST_URL'] || defaultUrl(env));
  // It works, as it does everywhere; but who expects a lock from it must not find out by an accident.
  if (/^memory:/i.test(chosen)) warn('locks of memory: are inside of this one process: they exclude nobody');
  return chosen;
}

function warn(message: string): void {
  process.emitWarning(message, 'HoldfastWarning');
}

function defaultUrl(env: NodeJS.ProcessEnv): string {
  return `sqlite:${fileOfOurOwn(stateFolder(env), 'locks.db')}`;
}

/** HOME may be set and empty. A path that is not absolute would be another file in each folder that somebody works in. */
export function stateFolder(env: NodeJS.ProcessEnv, home = homedir()): string {
  const state = env['XDG_STATE_HOME'] ?? '';
  const own = isAbsolute(home) ? home : userInfo().homedir;
  // The XDG specification: a relative path is invalid and to be ignored.
  return join(isAbsolute(state) ? state : join(own, '.local', 'state'), 'holdfast');
}
