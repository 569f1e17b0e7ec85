/**
 * A chapter: one lock that people write, the moment in which it breaks, and the same moment with Holdfast.
 *
 * Nothing is left to luck. A chapter forces its interleaving: it holds a command back until the others have done their
 * part, or cuts, freezes and kills what has to fail.
 */
import { readFileSync } from 'node:fs';
import type { Scene } from './scene.js';
import type { Servers } from './servers.js';

export interface Chapter {
  /** Chooses it on the command line, and finds its blocks on the pages. */
  readonly word: string;
  readonly title: string;
  /** What the lock tries, and where people take it from. */
  readonly tries: string;
  /** The lock itself, as it runs here. */
  readonly code: string;
  readonly naive: Play;
  /** The same interleaving, on the same kind of server. */
  readonly holdfast: Play;
}

type Play = (scene: Scene, servers: Servers) => Promise<void>;

/** What stands in a file between its region's marks: a reader sees the very lines that run. */
export function naiveCode(url: string): string {
  const [, code] = /^\/\/ #region naive\n(.*?)^\/\/ #endregion$/ms.exec(readFileSync(new URL(url), 'utf8')) ?? [];
  if (code === undefined) throw new Error(`${url} has no region "naive"`);
  return code.trim();
}
