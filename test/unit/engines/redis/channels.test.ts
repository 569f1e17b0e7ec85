/** Messages come in a client's event, which nobody has called: what a listener throws there would end the process. */
import { expect, test } from 'vitest';
import { Channels } from '../../../../src/engines/redis/client/port.js';

function thrower(): never {
  throw new Error('a mistake of ours');
}

test('what a listener throws because of a message goes no further', () => {
  const channels = new Channels();
  channels.add('c', { message: thrower, resumed: thrower });
  channels.message('c', 'granted a-1 7 n');
});

test('a listener that throws keeps nobody from hearing that messages come again', () => {
  const channels = new Channels();
  let resumed = 0;
  channels.add('c', { message: thrower, resumed: thrower });
  channels.add('d', { message: thrower, resumed: () => (resumed += 1) });
  channels.resumed();
  expect(resumed).toBe(1);
});
