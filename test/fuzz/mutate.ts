/** Inputs that are nearly right: made of valid ones, by what goes wrong on a wire and by what somebody would try. */
import { seededRandom } from '../servers/seeded-random.js';

export class Mutator {
  readonly #random: () => number;

  constructor(seed: number) {
    this.#random = seededRandom(seed);
  }

  below(limit: number): number {
    return Math.floor(this.#random() * limit);
  }

  one<T>(of: readonly T[]): T {
    return of[this.below(of.length)]!;
  }

  /** One of these, with up to four faults in it. */
  bytes(corpus: readonly Buffer[]): Buffer {
    let input: Buffer = Buffer.from(this.one(corpus));
    for (let faults = this.below(5); faults > 0; faults -= 1) input = this.#fault(input, this.one(corpus));
    return input;
  }

  text(corpus: readonly string[]): string {
    let input = this.one(corpus);
    for (let faults = this.below(5); faults > 0; faults -= 1) {
      const at = this.below(input.length + 1);
      const cut = at + this.below(4);
      const grown = this.one(['', this.one(ODD_TEXT), this.one(ODD_TEXT), this.one(corpus)]);
      input = (input.slice(0, at) + grown + input.slice(cut)).slice(0, LONGEST_TEXT);
    }
    return input;
  }

  #fault(input: Buffer, other: Buffer): Buffer {
    const at = this.below(input.length + 1);
    switch (this.below(6)) {
      case 0:
        return input.subarray(0, at);
      case 1:
        return Buffer.concat([input.subarray(0, at), other.subarray(this.below(other.length + 1)), input.subarray(at)]);
      case 2:
        return Buffer.concat([input.subarray(0, at), this.one(ODD_BYTES), input.subarray(at + this.below(9))]);
      case 3:
        return Buffer.concat([input.subarray(0, at), input.subarray(at + this.below(9))]);
      default: {
        const changed = Buffer.from(input);
        if (changed.length > 0) changed[this.below(changed.length)] = this.below(256);
        return changed;
      }
    }
  }
}

const LONGEST_TEXT = 2_000;
const ODD_BYTES = ['ff', '00', '7fffffff', '80000000', 'ffffffff', 'ffffffffffffffffff01', '0a00', '1200', '0d0a'].map(
  (hex) => Buffer.from(hex, 'hex'),
);
const ODD_TEXT = [
  ...[
    '',
    ' ',
    '\r\n',
    '\0',
    '\u{1b}[31m',
    '\u{202e}',
    '%',
    '%zz',
    '%E0%A4%A',
    '%2F',
    '/',
    '..',
    '\\',
    '"',
    "'",
    '{',
    '[',
    ':',
  ],
  ...[
    '@',
    '?',
    '&',
    '=',
    ',',
    '-',
    '0',
    '-1',
    '1e308',
    'NaN',
    '9223372036854775808',
    '18446744073709551615',
    '9'.repeat(50),
  ],
  ...['__proto__', 'constructor', 'null', '\u{d800}', '\u{fffd}', '\u{1f512}', 'x'.repeat(600)],
];
