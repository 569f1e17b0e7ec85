// At most three jobs at a time, and big jobs that count for two.
import { setTimeout as sleep } from 'node:timers/promises';
import { Holdfast } from 'holdfast';

const locks = new Holdfast('memory:');
const gpu = locks.semaphore('gpu', 3);

let inUse = 0;
let most = 0;

async function job(permits) {
  await gpu.run({ permits }, async () => {
    inUse += permits;
    most = Math.max(most, inUse);
    await sleep(10);
    inUse -= permits;
  });
}

await Promise.all([job(1), job(2), job(1), job(1), job(2), job(1)]);
console.log(`most permits in use: ${most} of 3`);

const two = await gpu.acquire({ permits: 2 });
console.log(`room for two more: ${(await gpu.tryAcquire({ permits: 2 })) !== undefined}`);
console.log(`room for one more: ${(await gpu.tryAcquire()) !== undefined}`);
await two.release();

await locks.close(); // releases what is left

// Output:
// most permits in use: 3 of 3
// room for two more: false
// room for one more: true
