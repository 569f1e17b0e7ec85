/** What a program does with each tool: it takes locks, and says `locks work`. */

/** The body of an async function that has `Holdfast` and its errors. */
const WORK = `
  const locks = new Holdfast('memory:');
  const lease = await locks.mutex('a').acquire();
  const late = await locks.mutex('a').acquire({ timeout: 50 }).catch((error) => error);
  if (!(late instanceof AcquireTimeoutError) || late.name !== 'AcquireTimeoutError') throw late;
  await lease.release();
  const done = await locks.once('job', {}, () => 'locks work');
  await locks.close();
  // An engine whose client is not installed is told at once.
  const absent = new Holdfast('mysql://localhost:1/db');
  const missing = await absent.mutex('a').acquire().catch((error) => error);
  if (missing.code !== 'HOLDFAST_CONFIG' || !missing.message.includes('npm install mysql2')) throw missing;
  await absent.close();
  console.log(done.ran === true ? done.value : 'not run');
`;

export const MODULE = `import { AcquireTimeoutError, Holdfast } from 'holdfast';\n${WORK}`;
export const COMMON_JS = `const { AcquireTimeoutError, Holdfast } = require('holdfast');\n(async () => {${WORK}})();`;

/** A function that a server calls for a request. */
export const HANDLER = `import { AcquireTimeoutError, Holdfast } from 'holdfast';
export const dynamic = 'force-dynamic';
export async function GET() {${WORK}
  return new Response('answered');
}`;

/** Tests of a user, for any runner that has \`test\` and fake timers. */
export function runnerTests({ fake, real, advance }: Readonly<Record<'fake' | 'real' | 'advance', string>>): string {
  return `
  test('locks', async () => {${WORK}});

  test('fake timers', async () => {
    ${fake}
    try {
      const locks = new Holdfast('memory:', { ttl: '1s' });
      const lease = await locks.mutex('a').acquire();
      ${advance}
      lease.assertHeld();
      const late = await locks.mutex('a').acquire({ timeout: 50 }).catch((error) => error);
      if (!(late instanceof AcquireTimeoutError)) throw late;
      await lease.release();
      await locks.close();
    } finally {
      ${real}
    }
  });
`;
}
