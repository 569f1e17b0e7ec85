// A lock alone can't stop a holder who slept through the end of its lease. A fencing token can.
import { setTimeout as sleep } from 'node:timers/promises';
import { Holdfast, StaleTokenError } from 'holdfast';

const locks = new Holdfast('memory:');
const lock = locks.mutex('report');
const report = locks.register('report');

// Ada takes the lock and then stalls. Here maxHold ends her lease; in real life it is a long pause or a lost network.
const ada = await lock.acquire({ maxHold: '20ms' });
await sleep(50);

// Ben comes next. A read-modify-write shows its token with the read already: from here on older ones are refused.
const ben = await lock.acquire();
const before = await report.get(ben);
await report.set(`${before?.value ?? ''}Ben was here.`, ben);
console.log(`later grant, larger token: ${ben.token > ada.token}`);

// Ada wakes up. She did not look at ada.held, and it does no harm: the register looks at her token.
try {
  await report.set('Ada was here.', ada);
} catch (error) {
  if (!(error instanceof StaleTokenError)) throw error;
  console.log(`Ada is refused: ${error.code}`);
}
console.log(`held: Ada ${ada.held}, Ben ${ben.held}`);
console.log((await report.get()).value);

await locks.close();

// Output:
// later grant, larger token: true
// Ada is refused: HOLDFAST_STALE_TOKEN
// held: Ada false, Ben true
// Ben was here.
