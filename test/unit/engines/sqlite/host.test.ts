import { spawnSync } from 'node:child_process';
import { expect, test } from 'vitest';
import { host, isDead, startTimeIn } from '../../../../src/engines/sqlite/host.js';

/** As the kernel writes it: the name of the program may have brackets and spaces in it. */
const stat = `4711 (a) b (c)) S ${'0 '.repeat(18)}123456 0 0`;

test('a start time is read from the entry of that very process', () => {
  expect(startTimeIn(stat, 4711)).toBe('123456');
  expect(startTimeIn(stat.replace(' S ', ' Z '), 4711)).toBe('zombie');
});

test('a /proc that counts pids in another way tells no start time', () => {
  expect(startTimeIn(stat, 46)).toBeUndefined();
  expect(startTimeIn(stat, 471)).toBeUndefined();
  expect(startTimeIn('', 46)).toBeUndefined();
});

test.skipIf(process.platform !== 'linux')('nobody is judged by pid from where /proc is not ours', () => {
  const { pid } = spawnSync('true');
  const ended = { ...host, pid };
  expect(isDead(ended)).toBe(true);
  expect(isDead({ ...host, startTime: '1' })).toBe(true);
  const elsewhere = { ...host, startTime: undefined };
  expect(isDead(ended, elsewhere)).toBe(false);
  expect(isDead({ ...host, startTime: '1' }, elsewhere)).toBe(false);
});
