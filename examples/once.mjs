// Ten servers start the same nightly job. One runs it, the others skip it.
import { setTimeout as sleep } from 'node:timers/promises';
import { Holdfast } from 'holdfast';

const fleet = Array.from({ length: 10 }, () => new Holdfast('memory:'));

// atLeast: even if the job is quick, nobody runs it again for a minute. atMost: after an hour it has lost the lock.
const results = await Promise.all(
  fleet.map((locks) =>
    locks.once('nightly', { atLeast: '1m', atMost: '1h' }, async (lease) => {
      await sleep(20, undefined, { signal: lease.signal });
      return 'cleaned up';
    }),
  ),
);

for (const { value } of results.filter(({ ran }) => ran)) console.log(`ran: ${value}`);
console.log(`skipped: ${results.filter(({ ran }) => !ran).length}`);

const again = await fleet[0].once('nightly', { atLeast: '1m' }, () => 'never called');
console.log(`a moment later: ran ${again.ran}`);

await Promise.all(fleet.map((locks) => locks.close()));

// Output:
// ran: cleaned up
// skipped: 9
// a moment later: ran false
