/**
 * The names of nodes. protocol.ts tells what stands in them.
 *
 *     /<namespace>/lock/<name>                       a container: the servers remove it some time after it is empty
 *         _c_<claim id>-lock-<number>                a mutex, as Curator's InterProcessMutex names it
 *         _c_<claim id>-__READ__<number>             a reader and a writer, as its InterProcessReadWriteLock names them
 *         _c_<claim id>-__WRIT__<number>
 *     /<namespace>/semaphore/<name>                  a container
 *         _c_<claim id>-permit-<weight>-of-<capacity>-<number>
 *     /<namespace>/session/<session id>              what a session is to be told; it goes with the session
 *     /<namespace>/register/<name>                   stays
 *
 * Numbers are ZooKeeper's: ten digits, counted up for each child of a node, from 2147483647 on to -2147483648. Names are
 * percent-encoded, so that none contains a '/', and none is '.' or '..'. With a `key` of the user's own, `/<namespace>/lock/<name>`
 * is whatever that says.
 */
import type { Claim, LineRef } from '../../core/engine.js';
import { show } from '../../core/duration.js';
import { ConfigError, quote } from '../../core/errors.js';
import { ALL } from '../../core/line.js';
import { decodeName, encodeName, type KeyOf } from '../../kit/encoded-name.js';

/** A node that is a claim, by its name. */
export interface ClaimName {
  readonly node: string;
  /** The protection that was chosen before it was made; absent where another program did without. */
  readonly id: string | undefined;
  readonly kind: LineRef['kind'];
  readonly number: number;
  readonly weight: number;
  readonly capacity: number;
}

/** Others may have made nodes with any name. What is longer than ours and Curator's are is no claim, and not looked through. */
const LOCK_NODE = /^(?:_c_(.{1,600})-)?(lock-|__READ__|__WRIT__)(-?\d{10})$/;
const PERMIT_NODE = /^_c_(.{1,600})-permit-(\d{1,10})-of-(\d{1,10})-(-?\d{10})$/;
const READ = '__READ__';
/** Servers take points alone for something else. */
const POINTS: ReadonlyMap<string, string> = new Map([
  ['%2E', '.'],
  ['%2E%2E', '..'],
]);

export class Paths {
  readonly #root: string;
  readonly #lockKey: KeyOf;
  /** Whether a lock's name can be told from its path. */
  readonly ownNames: boolean;

  constructor(namespace: string, lockKey?: KeyOf) {
    // `/zookeeper` is the servers' own.
    this.#root = `/${partOf(namespace).replace(/^z(?=ookeeper$)/, '%7A')}`;
    this.#lockKey = lockKey ? checked(lockKey) : (name) => `${this.#root}/lock/${partOf(name)}`;
    this.ownNames = lockKey === undefined;
  }

  /** The node that the claims of a line are children of. */
  line({ kind, name }: LineRef): string {
    return kind === 'lock' ? this.#lockKey(name) : `${this.lines(kind)}/${partOf(name)}`;
  }

  /** The node that all lines of a kind are children of. */
  lines(kind: LineRef['kind']): string {
    return `${this.#root}/${kind}`;
  }

  session(id: bigint): string {
    return `${this.#root}/session/${BigInt.asUintN(64, id).toString(16)}`;
  }

  register(name: string): string {
    return `${this.#root}/register/${partOf(name)}`;
  }

  /** The line that a claim's path belongs to, by the layout above; undefined: none. */
  lineOf(path: string): LineRef | undefined {
    if (!path.startsWith(`${this.#root}/`)) return undefined;
    const [kind, name = '', node, ...rest] = path.slice(this.#root.length + 1).split('/');
    if ((kind !== 'lock' && kind !== 'semaphore') || node === undefined || rest.length > 0) return undefined;
    const decodedName = nameOf(name);
    return decodedName === undefined ? undefined : { kind, name: decodedName };
  }
}

/** What stands before the number in the name of a claim's node. */
export function nodePrefix({ id, line, weight, capacity, rw }: Claim): string {
  const protection = `_c_${partOf(id)}-`;
  if (line.kind === 'semaphore') return `${protection}permit-${weight}-of-${capacity}-`;
  if (weight < capacity) return protection + READ;
  return protection + (rw ? '__WRIT__' : 'lock-');
}

/** The node of a claim that reads now and wrote before: it keeps the number, and so its place. */
export function readerPath(path: string): string {
  return path.replace(/(?:lock-|__WRIT__)(-?\d{10})$/, `${READ}$1`);
}

/** Undefined: no claim. */
export function parseNode(node: string, kind: LineRef['kind']): ClaimName | undefined {
  if (kind === 'semaphore') {
    const [, id, weight, capacity, number] = PERMIT_NODE.exec(node) ?? [];
    const numbers = { number: Number(number), weight: Number(weight), capacity: Number(capacity) };
    if (id === undefined || !isNumber(numbers.number) || !areOfOne(numbers)) return undefined;
    return { node, kind, id: decodeName(id) ?? id, ...numbers };
  }
  const [, id, word, number] = LOCK_NODE.exec(node) ?? [];
  if (word === undefined || !isNumber(Number(number))) return undefined;
  return {
    node,
    kind,
    id: id === undefined ? undefined : (decodeName(id) ?? id),
    number: Number(number),
    weight: word === READ ? 1 : ALL,
    capacity: ALL,
  };
}

/** Of a node: ZooKeeper's have 32 bits. */
function isNumber(number: number): boolean {
  return (number | 0) === number;
}

/** Permits that one semaphore can give. */
function areOfOne({ weight, capacity }: Pick<ClaimName, 'weight' | 'capacity'>): boolean {
  return weight > 0 && weight <= capacity && capacity <= ALL;
}

/** In line order: by number, which goes round after 2^31. Claims of one line are never that far apart. */
export function byNumber(a: ClaimName, b: ClaimName): number {
  return (a.number - b.number) | 0;
}

export function nodeOf(path: string): string {
  return path.slice(path.lastIndexOf('/') + 1);
}

/** Undefined: not a name that we have encoded. */
export function nameOf(part: string): string | undefined {
  const name = POINTS.get(part) ?? decodeName(part);
  return name !== undefined && partOf(name) === part ? name : undefined;
}

/** A name as a part of a path. */
function partOf(name: string): string {
  return name === '.' || name === '..' ? name.replaceAll('.', '%2E') : encodeName(name);
}

/** What the servers would refuse, in words of theirs. */
function checked(lockKey: KeyOf): KeyOf {
  return (name) => {
    const path = lockKey(name);
    const parts = typeof path === 'string' ? path.split('/') : [];
    const sound =
      parts.length > 1 && parts[0] === '' && parts.slice(1).every((part) => !['', '.', '..'].includes(part));
    if (!sound)
      throw new ConfigError(`key must give a path like '/locks/a'; for ${quote(name)} it gave ${show(path)}.`);
    return path;
  };
}
