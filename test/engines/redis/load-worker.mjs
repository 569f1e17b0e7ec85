/**
 * A process that holds, or that waits many times over. It uses the built package as a user's process would, and tells
 * its parent each thing once: 'holds', 'waits', 'done', 'closed'.
 */
import { Holdfast } from 'holdfast';
import { Redis } from 'ioredis';

const { port, ttl, name, namespace, waiters } = JSON.parse(process.argv[2]);
const client = new Redis(port);
const locks = new Holdfast(`redis://127.0.0.1:${port}?epochGuard=false`, { ttl, namespace, cohort: false });
const lock = locks.mutex(name);

if (waiters === 0) {
  await lock.acquire();
  process.send('holds');
} else {
  await locks.ready();
  const served = Promise.all(Array.from({ length: waiters }, serve));
  process.send('waits');
  await served;
  process.send('done');
  await locks.close();
  client.disconnect();
  process.disconnect();
}

async function serve() {
  const lease = await lock.acquire();
  // All processes write into one list: whoever is served while another still holds is out of order there.
  await client.rpush(`served:${name}`, `${lease.token}`);
  await lease.release();
}

process.once('disconnect', () => process.exit());
