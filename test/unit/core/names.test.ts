import * as fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { ConfigError } from '../../../src/core/errors.js';
import { checkName } from '../../../src/core/names.js';
import { anyText } from '../any-text.js';

/** C0, DEL and C1, counted out by hand. */
function hasControl(name: string): boolean {
  return Array.from(name, (character) => character.charCodeAt(0)).some(
    (code) => code < 0x20 || (code > 0x7e && code < 0xa0),
  );
}

describe('a name', () => {
  test.each([['a'], ['order:42'], ['/../{x} y*'], ['Größe'], ['🔒'], ['x'.repeat(512)], ['🔒'.repeat(128)], ['‮a﻿']])(
    '%j is allowed, and stays as it is',
    (name) => {
      expect(checkName(name)).toBe(name);
    },
  );

  test('is not normalised: what looks alike is still two names', () => {
    const composed = 'é'.normalize('NFC');
    const decomposed = 'é'.normalize('NFD');
    expect(checkName(composed)).not.toBe(checkName(decomposed));
  });

  test('has 1 to 512 bytes, not characters', () => {
    expect(() => checkName('')).toThrow('must have 1 to 512 bytes in UTF-8; got 0');
    expect(() => checkName('x'.repeat(513))).toThrow('got 513');
    expect(() => checkName('é'.repeat(257))).toThrow('got 514');
    expect(() => checkName(`${'🔒'.repeat(128)}x`)).toThrow('got 513');
  });

  test('any string of well-formed Unicode without control characters is allowed up to 512 bytes, and no other', () => {
    fc.assert(
      fc.property(anyText({ maxLength: 260, size: 'max' }), (name) => {
        const bytes = Buffer.byteLength(name);
        const allowed = bytes >= 1 && bytes <= 512 && name.isWellFormed() && !hasControl(name);
        if (allowed) expect(checkName(name)).toBe(name);
        else expect(() => checkName(name)).toThrow(ConfigError);
      }),
      { numRuns: 150 },
    );
  });

  test.each([['\ud800'], ['a\udc00b'], ['\udc00\ud800']])(
    '%j is refused: every lone surrogate is the same in UTF-8',
    (name) => {
      expect(() => checkName(name)).toThrow('lone surrogate');
    },
  );

  test('control characters are refused, those of C1 too', () => {
    const controls = [...Array(0x20).keys(), ...Array.from({ length: 0x21 }, (_, at) => 0x7f + at)];
    expect(controls).toContain(0x9f);
    for (const code of controls) {
      expect(() => checkName(`a${String.fromCharCode(code)}b`), `U+${code.toString(16)}`).toThrow('control characters');
    }
    expect(checkName('a\u00a0b')).toBe('a\u00a0b');
  });

  test('a refusal shows the wrong name without its control characters', () => {
    expect(() => checkName('a\nFATAL: forged')).toThrow('"a\\nFATAL: forged"');
    expect(() => checkName('a\u009b31m')).toThrow('"a\\u009b31m"');
  });

  test.each([[undefined], [null], [42], [{}], [['a']]])('%j is no name', (value) => {
    expect(() => checkName(value)).toThrow(ConfigError);
    expect(() => checkName(value, 'namespace')).toThrow('namespace must be a string; got');
  });
});
