/**
 * Is there an order of the operations, each somewhere between its call and its return, in which a sequential model would
 * have given the same answers?
 *
 * The events are walked through once, in order of time, with all *worlds* that are possible so far. A world is a state
 * of the model and the open operations that have already happened in it:
 *
 *     call X      X is open from now on: it may have happened, or not yet
 *     return X    X has happened: worlds where it has not yet, try every order of open operations that ends with X
 *
 * Nothing happens in a world before a return asks for it, except what leaves no trace, and worlds that look the same are
 * one. With few operations at a time there are few worlds, so the time is nearly linear; no world left is a violation, and
 * the return that ended the last one shows where. An operation that never returned stays open: it may happen at
 * any time or never, until it can't leave a trace any more.
 *
 * After Lowe, "Testing for linearizability" (2017), just-in-time linearization.
 */

export interface Operation {
  readonly call: number;
  /** Infinite if it is not known whether it happened. */
  readonly ret: number;
}

export interface Model<State, Op extends Operation> {
  readonly initial: State;
  /**
   * The state after it, or undefined if it can't have had this outcome here. The very same state if it leaves no trace
   * here, and would leave none at any later time: a refusal, a look.
   */
  step(state: State, op: Op): State | undefined;
  /** The same for states that behave the same. */
  key(state: State): string;
}

export type Answer<State, Op> =
  | { readonly linearizable: true }
  /** What was left of the budget's worlds was too much. */
  | { readonly linearizable: undefined; readonly at: Op }
  /** No order explains what `at` returned; in one world that was left, this was the state, made by `after`. */
  | { readonly linearizable: false; readonly at: Op; readonly state: State; readonly after: Op | undefined };

/** So many worlds at one return, and it is undecided. */
const MOST_WORLDS = 20_000;

interface World<State, Op> {
  readonly state: State;
  readonly happened: ReadonlySet<Op>;
  /** What changed the state last. */
  readonly last: Op | undefined;
}

export function linearize<State, Op extends Operation>(
  model: Model<State, Op>,
  ops: readonly Op[],
  mostWorlds = MOST_WORLDS,
): Answer<State, Op> {
  const search = new Search(model, mostWorlds);
  for (const { op, returns } of eventsOf(ops)) {
    if (!returns) {
      search.call(op);
      continue;
    }
    const before = search.anyWorld;
    const left = search.return(op);
    if (left === undefined) return { linearizable: undefined, at: op };
    if (left === 0) return { linearizable: false, at: op, state: before.state, after: before.last };
  }
  return { linearizable: true };
}

/** Calls before returns of the same time: the clock is not finer, and the kinder order must be tried. */
function eventsOf<Op extends Operation>(ops: readonly Op[]): readonly { readonly op: Op; readonly returns: boolean }[] {
  return ops
    .flatMap((op) => [
      { op, returns: false, at: op.call },
      { op, returns: true, at: op.ret },
    ])
    .filter(({ at }) => at !== Number.POSITIVE_INFINITY)
    .sort((a, b) => a.at - b.at || Number(a.returns) - Number(b.returns));
}

const NONE: ReadonlySet<never> = new Set<never>();

class Search<State, Op extends Operation> {
  readonly #model: Model<State, Op>;
  readonly #mostWorlds: number;
  readonly #open = new Set<Op>();
  readonly #numbers = new Map<Op, number>();
  #numbered = 0;
  #worlds: readonly World<State, Op>[];

  constructor(model: Model<State, Op>, mostWorlds: number) {
    this.#model = model;
    this.#mostWorlds = mostWorlds;
    this.#worlds = [{ state: model.initial, happened: NONE, last: undefined }];
  }

  get anyWorld(): World<State, Op> {
    return this.#worlds[0]!;
  }

  call(op: Op): void {
    this.#open.add(op);
    this.#numbers.set(op, (this.#numbered += 1));
    this.#worlds = this.#worlds.map((world) => this.#settle(world, [op]));
    if (op.ret === Number.POSITIVE_INFINITY) this.#forget(op);
  }

  /** How many worlds are left, or undefined if there were too many. */
  return(op: Op): number | undefined {
    const left =
      this.#open.size === 1 && this.#worlds.length === 1 ? this.#worldsAfterAlone(op) : this.#worldsAfter(op);
    if (!left) return undefined;
    this.#worlds = left;
    this.#open.delete(op);
    this.#numbers.delete(op);
    for (const open of this.#open) if (open.ret === Number.POSITIVE_INFINITY) this.#forget(open);
    return left.length;
  }

  /** Most operations meet no other: nothing is to be tried then. */
  #worldsAfterAlone(op: Op): readonly World<State, Op>[] {
    return this.#worlds.flatMap((world) => {
      const done = world.happened.has(op) ? world : this.#happen(world, op);
      return done ? [{ ...done, happened: NONE }] : [];
    });
  }

  #worldsAfter(op: Op): readonly World<State, Op>[] | undefined {
    const after = new Map<string, World<State, Op>>();
    const seen = new Set<string>();
    const todo = [...this.#worlds];
    for (let world = todo.pop(); world; world = todo.pop()) {
      const done = world.happened.has(op) ? world : this.#happen(world, op);
      if (done) {
        const closed = { ...done, happened: without(done.happened, op) };
        after.set(this.#key(closed), closed);
      }
      if (world.happened.has(op)) continue;
      for (const next of this.#otherSteps(world, op)) {
        const key = this.#key(next);
        if (seen.has(key)) continue;
        seen.add(key);
        todo.push(next);
      }
      if (seen.size > this.#mostWorlds) return undefined;
    }
    return [...after.values()];
  }

  #otherSteps(world: World<State, Op>, op: Op): readonly World<State, Op>[] {
    const steps: World<State, Op>[] = [];
    for (const other of this.#open) {
      if (other === op || world.happened.has(other)) continue;
      const next = this.#happen(world, other);
      if (next) steps.push(next);
    }
    return steps;
  }

  #happen(world: World<State, Op>, op: Op): World<State, Op> | undefined {
    const state = this.#model.step(world.state, op);
    if (state === undefined) return undefined;
    const happened = new Set(world.happened).add(op);
    if (state === world.state) return { ...world, happened };
    return this.#settle({ state, happened, last: op }, this.#open);
  }

  /** What leaves no trace happens at once: later would be the same, and worlds stay few. */
  #settle(world: World<State, Op>, ops: Iterable<Op>): World<State, Op> {
    let happened: Set<Op> | undefined;
    for (const op of ops) {
      if (world.happened.has(op) || this.#model.step(world.state, op) !== world.state) continue;
      happened ??= new Set(world.happened);
      happened.add(op);
    }
    return happened ? { ...world, happened } : world;
  }

  /** An unknown operation that is behind every world needs no thought any more. */
  #forget(op: Op): void {
    if (!this.#worlds.every(({ happened }) => happened.has(op))) return;
    this.#open.delete(op);
    this.#numbers.delete(op);
    this.#worlds = this.#worlds.map((world) => ({ ...world, happened: without(world.happened, op) }));
  }

  #key({ state, happened }: World<State, Op>): string {
    const numbers = [...happened].map((op) => this.#numbers.get(op)!).sort((a, b) => a - b);
    return `${numbers.join(',')};${this.#model.key(state)}`;
  }
}

function without<T>(set: ReadonlySet<T>, item: T): ReadonlySet<T> {
  const rest = new Set(set);
  rest.delete(item);
  return rest;
}
