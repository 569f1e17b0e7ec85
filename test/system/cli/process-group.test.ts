/** Of what is left of a command, nothing is overlooked. */
import { spawn } from 'node:child_process';
import { expect, onTestFinished, test } from 'vitest';
import { ProcessGroup } from '../../../src/cli/process-group.js';
import { Sandbox } from './sandbox.js';

/** Each starts the next and ends at once; the last one says so, and stays. */
const RELAY = 'run() { if [ $1 -gt 0 ]; then run $(($1 - 1)) & else echo > "$0"; sleep 1000; fi; }; run 150';

test('a group whose processes start others and end is not gone while one of them lives', async () => {
  await using box = new Sandbox();
  const child = spawn('sh', ['-c', RELAY, box.path('last')], { detached: true, stdio: 'ignore' });
  const group = new ProcessGroup(child, child.pid!, true);
  onTestFinished(() => group.signal('SIGKILL'));
  const seen: boolean[] = [];
  while (box.text('last') === '') {
    seen.push(group.alive());
    // The first of them is collected.
    await new Promise((resolve) => setImmediate(resolve));
  }
  expect(seen.filter((alive) => !alive)).toEqual([]);
  expect(seen.length).toBeGreaterThan(1);
  group.signal('SIGKILL');
  expect(await group.goneBy(performance.now() + 60_000)).toBe(true);
});

test('a group of zombies is gone, though nobody has collected them', async () => {
  const child = spawn('sh', ['-c', 'exec sleep 1000'], { detached: true, stdio: 'ignore' });
  const group = new ProcessGroup(child, child.pid!, true);
  expect(group.alive()).toBe(true);
  group.signal('SIGKILL');
  // Without a turn of the event loop nobody can collect it.
  expect(group.goneBySync(performance.now() + 10_000)).toBe(true);
});
