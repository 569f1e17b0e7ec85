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
 * one line's keys may lie inside of another's.
 *
 * Anybody may write here. What has not exactly one of these names is no claim, and is as if it were not there.
 */
import type { LineRef } from '../../core/engine.js';
import { ALL } from '../../core/line.js';
import { decodeName, encodeName, type KeyOf } from '../../kit/encoded-name.js';

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

  /** The line that a key stands in, by the layout above; undefined: none. */
  lineOf(key: string): { readonly line: LineRef; readonly capacity: number | undefined } | undefined {
    if (!key.startsWith(`${this.#root}/`)) return undefined;
    const [kind, encoded = '', ...rest] = key.slice(this.#root.length + 1).split('/');
    const name = decodeName(encoded);
    if (name === undefined) return undefined;
    if (kind === 'lock' && rest.length === 1) return { line: { kind, name }, capacity: undefined };
    const capacity = kind === 'semaphore' ? permitCapacity(rest.join('/')) : undefined;
    return capacity === undefined ? undefined : { line: { kind: 'semaphore', name }, capacity };
  }

  inbox(lease: bigint): string {
    return `${this.#root}/inbox/${hex(lease)}/`;
  }

  /** Where it is said why a claim is to go. */
  message(lease: bigint, claimId: string): string {
    return this.inbox(lease) + encodeName(claimId);
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
  const encoded = /^[0-9a-f]{1,16}-(.+)$/.exec(suffix)?.[1];
  return encoded === undefined ? undefined : decodeName(encoded);
}

/** The last part of a key that is the lease itself, as `etcdctl lock` and Go's concurrency.Mutex name their claims. */
export function isLeaseAlone(suffix: string, lease: bigint): boolean {
  return lease !== 0n && suffix === hex(lease);
}

/** The capacity in what follows a semaphore's name; undefined: not a claim of ours. */
export function permitCapacity(rest: string): number | undefined {
  const [, digits, suffix = ''] = /^([1-9]\d{0,9})\/(.+)$/.exec(rest) ?? [];
  const capacity = Number(digits);
  return capacity <= ALL && claimIdIn(suffix) !== undefined ? capacity : undefined;
}

/** All keys that begin like this. */
export function under(prefix: string): KeyRange {
  const from = Buffer.from(prefix);
  const to = Buffer.from(from);
  // Every prefix of ours ends with '/' or text: its last byte is never the highest.
  to[to.length - 1]! += 1;
  return { from, to };
}

function hex(lease: bigint): string {
  return BigInt.asUintN(64, lease).toString(16);
}
