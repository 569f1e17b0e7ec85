import { isDeepStrictEqual } from 'node:util';
import { expect } from 'vitest';

/** `expect(actual, why).toEqual(expected)` for loops of many thousand: vitest is asked only about what differs. */
export function expectSame(actual: unknown, expected: unknown, why?: string): void {
  if (!isDeepStrictEqual(actual, expected)) expect(actual, why).toEqual(expected);
}
