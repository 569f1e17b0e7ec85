/** Of what is left of a command, nothing is overlooked. */
import { spawn } from 'node:child_process';
import { expect, onTestFinished, test } from 'vitest';
import { Family } from '../../../src/cli/family.js';
import { Sandbox } from './sandbox.js';

/**
 * Each starts the next and ends at once, until the test has made a file; or until they are enough, if it never does. Not a
 * function that calls itself: a shell has a limit for that.
 */
const RELAY = `
if [ -e "$1" ] || [ "$2" = 0 ]; then exec sleep 1000; fi
sh "$0" "$1" $(($2 - 1)) &
`;
const LOOKS = 25;

test('a group whose processes start others and end is not gone while one of them lives', async () => {
  await using box = new Sandbox();
  box.write('relay.sh', RELAY);
  const child = spawn('sh', [box.path('relay.sh'), box.path('stop'), '3000'], { detached: true, stdio: 'ignore' });
  const group = new Family(child, true);
  onTestFinished(() => group.signal('SIGKILL'));
  const seen: boolean[] = [];
  while (seen.length < LOOKS) {
    seen.push(group.alive());
    // The first of them is collected.
    await new Promise((resolve) => setImmediate(resolve));
  }
  box.write('stop');
  expect(seen.filter((alive) => !alive)).toEqual([]);
  group.signal('SIGKILL');
  expect(await group.goneBy(performance.now() + 60_000)).toBe(true);
});

test('a group of zombies is gone, though nobody has collected them', () => {
  const child = spawn('sh', ['-c', 'exec sleep 1000'], { detached: true, stdio: 'ignore' });
  const group = new Family(child, true);
  expect(group.alive()).toBe(true);
  group.signal('SIGKILL');
  // Without a turn of the event loop nobody can collect it.
  for (const until = performance.now() + 10_000; group.alive() && performance.now() < until;);
  expect(group.alive()).toBe(false);
});
