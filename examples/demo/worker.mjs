// One of the demo's processes: takes the lock again and again, and writes with its token. It tells its parent what
// happens to it, and otherwise knows nothing of the others.
import { setTimeout as sleep } from 'node:timers/promises';
import { Holdfast } from 'holdfast';

const [url, label] = process.argv.slice(2);
const locks = new Holdfast(url, { ttl: '1s', label });
const lock = locks.mutex('order:42');
const order = locks.register('order:42');
const tell = (event, details) => process.connected && process.send({ event, ...details });

const stop = new AbortController();
process.once('message', () => stop.abort());

async function takeATurn() {
  const lease = await lock.acquire({ signal: stop.signal });
  tell('holds', { token: `${lease.token}` });
  try {
    const before = await order.get(lease); // the read already shows the token
    tell('works');
    await sleep(120);
    await order.set(`${Number(before?.value ?? 0) + 1}`, lease);
  } catch (error) {
    tell('refused', { code: error.code });
  }
  tell('released', { kept: await lease.release() });
  await sleep(20);
}

while (!stop.signal.aborted) {
  await takeATurn().catch((error) => {
    if (!stop.signal.aborted) throw error;
  });
}
await locks.close();
process.disconnect();
