/** First in, first out, with removal from the middle in O(1): a waiter that gives up leaves no trace. */
export class Queue<T> implements Iterable<T> {
  #head: Link<T> | undefined;
  #tail: Link<T> | undefined;
  #size = 0;

  get size(): number {
    return this.#size;
  }

  get first(): T | undefined {
    return this.#head?.item;
  }

  push(item: T): Link<T> {
    const link: Link<T> = { item, before: this.#tail, after: undefined, queued: true };
    if (this.#tail) this.#tail.after = link;
    else this.#head = link;
    this.#tail = link;
    this.#size += 1;
    return link;
  }

  shift(): T | undefined {
    const link = this.#head;
    if (link) this.remove(link);
    return link?.item;
  }

  /** Items may be removed while it runs: a removed link still knows what came after it. */
  *[Symbol.iterator](): Iterator<T> {
    for (let link = this.#head; link; link = link.after) if (link.queued) yield link.item;
  }

  remove(link: Link<T>): boolean {
    if (!link.queued) return false;
    link.queued = false;
    this.#size -= 1;
    if (link.before) link.before.after = link.after;
    else this.#head = link.after;
    if (link.after) link.after.before = link.before;
    else this.#tail = link.before;
    return true;
  }
}

export interface Link<T> {
  readonly item: T;
  before: Link<T> | undefined;
  after: Link<T> | undefined;
  queued: boolean;
}
