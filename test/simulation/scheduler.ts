/** Virtual time: a heap of events, run one by one with all their promises settled in between. */
interface Event {
  readonly at: number;
  /** Ties run in the order in which they were made. */
  readonly order: number;
  readonly run: () => void;
}

export class Scheduler {
  now = 0;
  events = 0;
  readonly #heap: Event[] = [];
  #order = 0;

  after(ms: number, run: () => void): void {
    this.#order += 1;
    this.#push({ at: this.now + Math.max(0, ms), order: this.#order, run });
  }

  sleep(ms: number): Promise<void> {
    return new Promise((resolve) => this.after(ms, resolve));
  }

  /** Runs until `until`, or until `done` says so; `afterEach` sees the world at rest after every event. */
  async run(until: number, afterEach: () => void, done: () => boolean = () => false): Promise<void> {
    for (let event = this.#heap[0]; event && event.at <= until && !done(); event = this.#heap[0]) {
      this.#pop();
      this.now = event.at;
      this.events += 1;
      event.run();
      await settled();
      afterEach();
    }
    if (!done()) this.now = Math.max(this.now, until);
  }

  #push(event: Event): void {
    const heap = this.#heap;
    let at = heap.length;
    heap.push(event);
    while (at > 0) {
      const parent = (at - 1) >> 1;
      if (before(heap[parent]!, event)) break;
      heap[at] = heap[parent]!;
      at = parent;
    }
    heap[at] = event;
  }

  #pop(): void {
    const heap = this.#heap;
    const last = heap.pop()!;
    if (heap.length === 0) return;
    let at = 0;
    for (;;) {
      let child = 2 * at + 1;
      if (child >= heap.length) break;
      if (child + 1 < heap.length && before(heap[child + 1]!, heap[child]!)) child += 1;
      if (before(last, heap[child]!)) break;
      heap[at] = heap[child]!;
      at = child;
    }
    heap[at] = last;
  }
}

function before(a: Event, b: Event): boolean {
  return a.at < b.at || (a.at === b.at && a.order < b.order);
}

/** All promise reactions have run: immediates come after the microtask queue is empty. */
function settled(): Promise<void> {
  return new Promise((resolve) => setImmediate(resolve));
}
