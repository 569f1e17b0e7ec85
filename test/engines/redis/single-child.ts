/**
 * One process of a test: locks, closes or not, and says so. It must end by itself then, because nothing that is left keeps
 * it alive; it never calls process.exit.
 */
import { Redis } from 'ioredis';
import { redis } from '../../../src/engines/redis/index.js';
import { Holdfast } from '../../../src/index.js';

const [, , how = '', url = ''] = process.argv;

switch (how) {
  case 'url':
    await lockAndClose(new Holdfast(url, { ttl: '6s' }));
    break;
  case 'unused':
    await new Holdfast(url, { ttl: '6s' }).close();
    break;
  case 'client': {
    const { hostname, port } = new URL(url);
    const client = new Redis({ host: hostname, port: Number(port) });
    await lockAndClose(new Holdfast(redis(client, { epochGuard: false }), { ttl: '6s' }));
    // Ours to close: as long as it is open, the process is kept alive by it, and by nothing else.
    await client.quit();
    break;
  }
  case 'holding':
    await new Holdfast(url, { ttl: '6s' }).mutex('kept').acquire();
    break;
  case 'unreachable': {
    const locks = new Holdfast(url, { ttl: '6s' });
    await locks
      .mutex('job')
      .acquire({ timeout: '300ms' })
      .catch((error: unknown) => console.log(error instanceof Error ? error.name : error));
    await locks.close();
    break;
  }
  case 'unclosed': {
    const locks = new Holdfast(url, { ttl: '6s' });
    await locks
      .mutex('job')
      .acquire({ timeout: '300ms' })
      .catch((error: unknown) => console.log(error instanceof Error ? error.name : error));
    break;
  }
  default:
    throw new Error(`unknown: ${how}`);
}
console.log('done');

async function lockAndClose(locks: Holdfast): Promise<void> {
  await locks.mutex('job').run((lease) => lease.assertHeld());
  // Not released: close() does it.
  await locks.mutex('held').acquire();
  await locks.close();
}
