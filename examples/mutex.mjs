// One at a time: two tasks want the same order, and neither sees the other in the middle of its work.
import { setTimeout as sleep } from 'node:timers/promises';
import { AcquireTimeoutError, Holdfast } from 'holdfast';

const locks = new Holdfast('memory:', { label: 'billing' });
const lock = locks.mutex('order:42');

async function charge(who) {
  await lock.run({ timeout: '5s' }, async (lease) => {
    console.log(`${who} is in`);
    await sleep(20, undefined, { signal: lease.signal }); // stops at once if the lock is lost
    lease.assertHeld(); // right before anything that can't be undone
    console.log(`${who} is out`);
  });
}

await Promise.all([charge('Ada'), charge('Ben')]);

// Without a function around it: acquire and release.
const lease = await lock.acquire();
try {
  console.log(`busy: ${(await lock.tryAcquire()) === undefined}`);
  await lock.acquire({ timeout: '20ms' });
} catch (error) {
  if (!(error instanceof AcquireTimeoutError)) throw error;
  console.log(`${error.code}: held by ${error.holder.label.split('@')[0]}`);
} finally {
  console.log(`released: ${await lease.release()}`);
}

await locks.close();

// Output:
// Ada is in
// Ada is out
// Ben is in
// Ben is out
// busy: true
// HOLDFAST_TIMEOUT: held by billing
// released: true
