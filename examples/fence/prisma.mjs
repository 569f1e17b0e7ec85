// A fence inside a transaction of Prisma, here on PostgreSQL. PRISMA_CLIENT is the module that `prisma generate` made.
import { Holdfast } from 'holdfast';
import { fence } from 'holdfast/fence';

const { PrismaClient, PrismaPg } = await import(process.env.PRISMA_CLIENT);
const prisma = new PrismaClient({ adapter: new PrismaPg({ connectionString: process.env.POSTGRES_URL }) });
const adapter = (tx) => ({
  dialect: 'postgres',
  query: (text, params) => tx.$queryRawUnsafe(text, ...params), // bound, not pasted: the text is ours
});
await prisma.$executeRaw`CREATE TABLE account_prisma (id int PRIMARY KEY, balance int NOT NULL)`;
await prisma.account.create({ data: { id: 1, balance: 100 } });

async function deposit(lease, amount) {
  await prisma.$transaction(async (tx) => {
    await fence(adapter(tx)).open('account:1 of prisma', lease); // before anything is read
    const { balance } = await tx.account.findUniqueOrThrow({ where: { id: 1 } });
    await tx.account.update({ where: { id: 1 }, data: { balance: balance + amount } });
  });
}

// Ada stalls and loses the lock; Ben comes next. Then she wakes up, does not look at ada.held, and goes on.
const locks = new Holdfast('memory:');
const lock = locks.mutex('account:1');
const ada = await lock.acquire({ maxHold: '20ms' });
const ben = await lock.acquire();
await deposit(ben, 10);
await deposit(ada, 5).catch((error) => console.log(`Ada is refused: ${error.code}`));

const { balance } = await prisma.account.findUniqueOrThrow({ where: { id: 1 } });
console.log(`balance: ${balance}`);
await locks.close();
await prisma.$disconnect();

// Output:
// Ada is refused: HOLDFAST_STALE_TOKEN
// balance: 110
