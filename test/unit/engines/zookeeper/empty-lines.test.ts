/** When the next to enter a line need not look who else is there. */
import { expect, test } from 'vitest';
import { EmptyLines } from '../../../../src/engines/zookeeper/empty-lines.js';
import type { NodeFooting } from '../../../../src/engines/zookeeper/protocol.js';

const ALL = 2 ** 31 - 1;

function node(number: number, zxid: bigint): NodeFooting {
  return { path: `/ns/lock/a/_c_x-lock-${`${number}`.padStart(10, '0')}`, token: zxid, since: 0 };
}

function leftAt(number: number, zxid: bigint, weight = ALL): EmptyLines {
  const lines = new EmptyLines();
  const line = { kind: 'lock', name: 'a' } as const;
  lines.holds({ claim: { id: 'x', line, serial: 1, weight, capacity: ALL, wait: true, note: '' } }, node(number, 1n));
  lines.left(node(number, 1n), zxid);
  return lines;
}

test('the very next number is alone, any other is not, and what was known is used up', () => {
  const lines = leftAt(7, 100n);
  expect(lines.has('/ns/lock/a')).toBe(true);
  expect(lines.isAlone(node(8, 101n))).toBe(true);
  expect(lines.has('/ns/lock/a')).toBe(false);
  expect(lines.isAlone(node(8, 101n))).toBe(false);
  expect(leftAt(7, 100n).isAlone(node(9, 101n))).toBe(false);
  expect(leftAt(2 ** 31 - 1, 100n).isAlone(node(-(2 ** 31), 101n))).toBe(true);
});

test('where the line may have been removed and filled again meanwhile, it is looked at', () => {
  // Removed, made, and eight others before us: ten transactions between the leave at 100 and the enter.
  expect(leftAt(7, 100n).isAlone(node(8, 111n))).toBe(false);
  expect(leftAt(7, 100n).isAlone(node(8, 108n))).toBe(true);
  // Another leader counts from elsewhere.
  expect(leftAt(7, 100n).isAlone(node(8, (1n << 32n) + 1n))).toBe(false);
});

test('a reader says nothing of who else reads, and one that went by another name nothing of when', () => {
  expect(leftAt(7, 100n, 1).has('/ns/lock/a')).toBe(false);
  const lines = leftAt(7, 100n);
  lines.forget('/ns/lock/a');
  expect(lines.isAlone(node(8, 101n))).toBe(false);
});
