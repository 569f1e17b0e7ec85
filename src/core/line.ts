/**
 * The one rule: claims stand in one ordered line, and the longest prefix whose weights fit the capacity holds the
 * resource. Mutex and write lock weigh ALL of ALL, a read lock 1 of ALL, a semaphore claim k of n.
 *
 * `holders` is the rule itself, pure: the model in property tests. `Line` keeps the same answer step by step:
 *
 *     head → [A held][B held] | [C waits][D waits] ← tail
 *                             frontier
 *
 * Everything before the frontier holds, `heldWeight` is the sum of their weights. A granted claim never becomes
 * ungranted by others leaving, so the frontier only moves towards the tail; each step costs O(1) and each grant O(1).
 */

/** The weight and the capacity of exclusive use. Fits a signed 32-bit column and a double. */
export const ALL = 2 ** 31 - 1;

/** How many claims at the front of the line hold the resource. */
export function holders(weights: readonly number[], capacity: number): number {
  let sum = 0;
  const first = weights.findIndex((weight) => (sum += weight) > capacity);
  return first === -1 ? weights.length : first;
}

export interface Spot<T> {
  readonly item: T;
  readonly weight: number;
  readonly held: boolean;
}

interface Node<T> extends Spot<T> {
  weight: number;
  held: boolean;
  inLine: boolean;
  before: Node<T> | undefined;
  after: Node<T> | undefined;
}

export class Line<T> implements Iterable<Spot<T>> {
  readonly capacity: number;
  #head: Node<T> | undefined;
  #tail: Node<T> | undefined;
  /** The first claim that waits. */
  #frontier: Node<T> | undefined;
  #heldWeight = 0;
  #size = 0;

  constructor(capacity: number) {
    this.capacity = capacity;
  }

  get size(): number {
    return this.#size;
  }

  /** Whether a claim of this weight would hold at once. */
  fits(weight: number): boolean {
    return !this.#frontier && this.#heldWeight + weight <= this.capacity;
  }

  /** Joins at the tail. The spot says whether it holds already. */
  enter(item: T, weight: number): Spot<T> {
    const held = this.fits(weight);
    const node: Node<T> = { item, weight, held, inLine: true, before: this.#tail, after: undefined };
    if (this.#tail) this.#tail.after = node;
    else this.#head = node;
    this.#tail = node;
    this.#size += 1;
    if (held) this.#heldWeight += weight;
    else this.#frontier ??= node;
    return node;
  }

  /** Leaves, held or waiting, and returns who holds now because of it. A second leave changes nothing. */
  leave(spot: Spot<T>): readonly Spot<T>[] {
    const node = spot as Node<T>;
    if (!node.inLine) return [];
    node.inLine = false;
    this.#size -= 1;
    if (node.held) this.#heldWeight -= node.weight;
    if (this.#frontier === node) this.#frontier = node.after;
    if (node.before) node.before.after = node.after;
    else this.#head = node.after;
    if (node.after) node.after.before = node.before;
    else this.#tail = node.before;
    return this.#admit();
  }

  /** Makes a claim lighter where it stands, and returns who holds now because of it. */
  lighten(spot: Spot<T>, weight: number): readonly Spot<T>[] {
    const node = spot as Node<T>;
    if (!node.inLine || weight >= node.weight) return [];
    if (node.held) this.#heldWeight -= node.weight - weight;
    node.weight = weight;
    return this.#admit();
  }

  *[Symbol.iterator](): Iterator<Spot<T>> {
    for (let node = this.#head; node; node = node.after) yield node;
  }

  #admit(): readonly Spot<T>[] {
    let admitted: Spot<T>[] | undefined;
    for (let next = this.#frontier; next && this.#heldWeight + next.weight <= this.capacity; next = this.#frontier) {
      next.held = true;
      this.#heldWeight += next.weight;
      this.#frontier = next.after;
      (admitted ??= []).push(next);
    }
    return admitted ?? NOBODY;
  }
}

const NOBODY: readonly never[] = [];
