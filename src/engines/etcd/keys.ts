/**
 * The names of keys. protocol.ts tells what stands in them.
 *
 *     <namespace>/lock/<name>/<lease>-<claim id>                    mutex, read and write lock
 *     <namespace>/semaphore/<name>/<capacity>/<lease>-<claim id>
 *     <namespace>/inbox/<lease>/                                    a session; it goes with its lease
 *     <namespace>/inbox/<lease>/<claim id>                          why a claim is to go
 *     <namespace>/register/<name>
 *
 * A lease is written as `etcdctl lock` writes it. Names are percent-encoded, so that none contains a '/': the claims of `a/b`
 * do not stand among those of `a`. With a `key` of the user's own, `<namespace>/lock/<name>` is whatever that says, and
 * one line's keys may lie inside of another's; `isOf` tells them apart.
 */
import type { LineRef } from '../../core/engine.js';

export type KeyOf = (name: string) => string;

/** The keys from `from` to `to`, the last not included. */
export interface KeyRange {
  readonly from: Buffer;
  readonly to: Buffer;
}

export class Keys {
  readonly #root: string;
  readonly #lockKey: KeyOf;
  /** Whether a lock's name can be told from its key. */
  readonly ownNames: boolean;

  constructor(namespace: string, lockKey?: KeyOf) {
    this.#root = encodeName(namespace);
    this.#lockKey = lockKey ?? ((name) => `${this.#root}/lock/${encodeName(name)}`);
    this.ownNames = lockKey === undefined;
  }

  /** What the keys of a line's claims begin with. */
  line({ kind, name }: LineRef, capacity: number): string {
    return kind === 'lock' ? `${this.#lockKey(name)}/` : `${this.semaphores(name)}${capacity}/`;
  }

  /** What the keys of a semaphore's claims begin with, whatever the capacity. */
  semaphores(name: string): string {
    return `${this.#root}/semaphore/${encodeName(name)}/`;
  }

  /** What the keys of all lines of a kind begin with, if their names begin with this. */
  lines(kind: LineRef['kind'], begin: string): string {
    return `${this.#root}/${kind}/${begin.isWellFormed() ? encodeName(begin) : ''}`;
  }

  /** The line that a key belongs to, by the layout above; undefined: none. */
  lineOf(key: string): { readonly line: LineRef; readonly capacity: number | undefined } | undefined {
    if (!key.startsWith(`${this.#root}/`)) return undefined;
    const [kind, encoded = '', ...rest] = key.slice(this.#root.length + 1).split('/');
    const name = decodeName(encoded);
    if (name === undefined) return undefined;
    if (kind === 'lock' && rest.length === 1) return { line: { kind, name }, capacity: undefined };
    if (kind === 'semaphore' && rest.length === 2) return { line: { kind, name }, capacity: Number(rest[0]) };
    return undefined;
  }

  inbox(lease: bigint): string {
    return `${this.#root}/inbox/${hex(lease)}/`;
  }

  register(name: string): string {
    return `${this.#root}/register/${encodeName(name)}`;
  }
}

/** The last part of a claim's key. */
export function claimSuffix(lease: bigint, claimId: string): string {
  return `${hex(lease)}-${encodeName(claimId)}`;
}

/** The claim id in the last part of a key; undefined: not a claim of ours. */
export function claimIdIn(suffix: string): string | undefined {
  const encoded = /^[0-9a-f]+-(.+)$/.exec(suffix)?.[1];
  return encoded === undefined ? undefined : decodeName(encoded);
}

/** Whether a key is a claim in this line, and not one in a line whose name goes on where this one's ends. */
export function isOf(prefix: string, key: string): boolean {
  return key.startsWith(prefix) && !key.includes('/', prefix.length);
}

/** All keys that begin like this. */
export function under(prefix: string): KeyRange {
  const from = Buffer.from(prefix);
  const to = Buffer.from(from);
  // Every prefix of ours ends with '/' or text: its last byte is never the highest.
  to[to.length - 1]! += 1;
  return { from, to };
}

/** Percent-encodes everything but letters, digits and `. _ : -`. */
function encodeName(name: string): string {
  return encodeURIComponent(name)
    .replaceAll('%3A', ':')
    .replace(/[!~*'()]/g, (character) => `%${character.charCodeAt(0).toString(16).toUpperCase()}`);
}

/** Undefined: nothing that we have encoded. Under our prefixes anybody may write. */
function decodeName(encoded: string): string | undefined {
  try {
    return decodeURIComponent(encoded);
  } catch {
    return undefined;
  }
}

function hex(lease: bigint): string {
  return BigInt.asUintN(64, lease).toString(16);
}
