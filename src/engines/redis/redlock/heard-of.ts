/** As the core makes them; a clock of the user's may make others, but no longer ones. */
const CLAIM_ID = /^[\w.:-]{1,128}$/;

/** Claims that were given up before they had a majority are heard of, too, and never by enough nodes. */
const MOST_CLAIMS = 1_000;

/**
 * How many nodes have said of which claim that it is gone. Whoever may publish can say it as well, which costs a look too many; so
 * what is no claim's id is passed over, and only so many are remembered.
 */
export class HeardOf {
  readonly #enough: number;
  readonly #counts = new Map<string, number>();

  constructor(enough: number) {
    this.#enough = enough;
  }

  /** @returns whether this makes it enough. */
  again(claim: string): boolean {
    if (!CLAIM_ID.test(claim)) return false;
    const count = (this.#counts.get(claim) ?? 0) + 1;
    // As the last one: the oldest is forgotten first.
    this.#counts.delete(claim);
    this.#counts.set(claim, count);
    if (this.#counts.size > MOST_CLAIMS) this.#counts.delete(this.#counts.keys().next().value!);
    if (count !== this.#enough) return false;
    this.#counts.clear();
    return true;
  }

  get size(): number {
    return this.#counts.size;
  }
}
