// A fence on Redis: each access shows the token, in one step with what it does.
import { Holdfast } from 'holdfast';
import { fence } from 'holdfast/fence';
import { Redis } from 'ioredis';

const redis = new Redis(process.env.REDIS_URL);
const BALANCE = '{account:1}:balance'; // the tag keeps it beside its fence on a cluster
await redis.set(BALANCE, '100');

async function deposit(lease, amount) {
  const account = await fence(redis).open('account:1', lease); // before anything is read
  const balance = Number(await account.get(BALANCE));
  await account.set(BALANCE, `${balance + amount}`);
  // Or a script of yours: account.eval(`return redis.call('INCRBY', KEYS[1], ARGV[1])`, [BALANCE], [`${amount}`])
}

// Ada stalls and loses the lock; Ben comes next. Then she wakes up, does not look at ada.held, and goes on.
const locks = new Holdfast('memory:');
const lock = locks.mutex('account:1');
const ada = await lock.acquire({ maxHold: '20ms' });
const ben = await lock.acquire();
await deposit(ben, 10);
await deposit(ada, 5).catch((error) => console.log(`Ada is refused: ${error.code}`));

console.log(`balance: ${await redis.get(BALANCE)}`);
await locks.close();
await redis.quit();

// Output:
// Ada is refused: HOLDFAST_STALE_TOKEN
// balance: 110
