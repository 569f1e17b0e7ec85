/** Names as parts of paths and keys, so that none of them contains a '/', and everybody can still read most of them. */
import { checkName } from '../core/names.js';

/** How the user's program, or one in another language, calls a lock's key. */
export type KeyOf = (name: string) => string;

/** What the encoding leaves as it is. */
const PLAIN = /^[\w.:-]+$/;

/** Percent-encodes everything but letters, digits and `. _ : -`. */
export function encodeName(name: string): string {
  if (PLAIN.test(name)) return name;
  return encodeURIComponent(name)
    .replaceAll('%3A', ':')
    .replace(/[!~*'()]/g, (character) => `%${character.charCodeAt(0).toString(16).toUpperCase()}`);
}

/** Undefined: nothing that `encodeName` has made of a name that there can be. Anybody may write where our names are. */
export function decodeName(encoded: string): string | undefined {
  try {
    const name = checkName(PLAIN.test(encoded) ? encoded : decodeURIComponent(encoded));
    return encodeName(name) === encoded ? name : undefined;
  } catch {
    return undefined;
  }
}
