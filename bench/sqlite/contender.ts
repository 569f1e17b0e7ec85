/** One of several processes that contend for a lock for three seconds, and says how its event loop fared. */
import { monitorEventLoopDelay } from 'node:perf_hooks';
import { Holdfast } from 'holdfast';

const locks = new Holdfast(`sqlite:${process.argv[2]}`);
await locks.ready();
const lock = locks.mutex('contended');
const delay = monitorEventLoopDelay({ resolution: 1 });
delay.enable();
let turns = 0;
for (const until = performance.now() + 3_000; performance.now() < until; turns += 1) {
  await lock.run(() => new Promise(setImmediate));
}
delay.disable();
await locks.close();
process.send!({ longestMs: delay.max / 1e6, turns });
process.disconnect();
