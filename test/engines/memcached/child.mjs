/** A process that must end by itself when nothing of ours is left to wait for; it never calls process.exit. */
import { Holdfast } from 'holdfast';

const [, , how, url] = process.argv;
const locks = new Holdfast(url, { ttl: '3s' });
if (how === 'holding') {
  await locks.mutex('kept').acquire();
} else {
  const lease = locks.mutex('awaited').acquire();
  await locks.ready();
  process.send('waiting');
  await lease;
}
console.log('done');
