import * as fc from 'fast-check';

/** The halves of pairs, which are no characters by themselves. */
const [FIRST_HALF, HALVES] = [0xd800, 0x800];

/** Every code point but those. fast-check has this as `unit: 'binary'`, and spends a second on a list of the million. */
const character = fc.nat(0x10_ffff - HALVES).map(
  (number) => String.fromCodePoint(number < FIRST_HALF ? number : number + HALVES),
  (text) => {
    const code = typeof text === 'string' ? (text.codePointAt(0) ?? -1) : -1;
    if (code < 0 || text !== String.fromCodePoint(code)) throw new TypeError('not one character');
    if (code < FIRST_HALF) return code;
    if (code < FIRST_HALF + HALVES) throw new TypeError('half a pair');
    return code - HALVES;
  },
);

/** Text of any characters, those that control something too. */
export function anyText(constraints: fc.StringSharedConstraints = {}): fc.Arbitrary<string> {
  return fc.string({ ...constraints, unit: character });
}
