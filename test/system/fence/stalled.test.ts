/**
 * The holder that stalls: another process takes a lock, reads what it protects, checks `held`, and then does not run for
 * longer than its lease lasts, because it is stopped or because its event loop is blocked. Meanwhile we take the lock and
 * make an update of our own. Then it wakes up and writes. On each resource the guard refuses it; the control, which is the
 * same without the guard, loses our update.
 *
 * One process for each way to stall holds the locks of all resources, with and without guards.
 */
import { type ChildProcess, fork } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { Holdfast } from 'holdfast';
import { startGuardedService } from '../../faults/guarded-service.js';
import { guardedBy, prepareGuarded } from '../../faults/guards.js';
import { startMariadb } from '../../servers/mariadb.js';
import { startPostgres } from '../../servers/postgres.js';
import { startRedis } from '../../servers/redis.js';
import type { Case, FromHolder, HolderSetup, Outcome } from './stalled-holder.js';

const RESOURCES = ['postgres', 'mysql', 'sqlite', 'redis', 'http'] as const;
const STALLS = ['stopped', 'blocked'] as const;

const folder = mkdtempSync(join(tmpdir(), 'holdfast-stalled-'));
const urls = { sqlite: `sqlite:${join(folder, 'app.db')}` } as Record<(typeof RESOURCES)[number], string>;
const closing: (() => unknown)[] = [() => rmSync(folder, { recursive: true, force: true })];

/** By the name of the case. */
const outcomes = new Map<string, Outcome & { readonly final: number }>();

beforeAll(async () => {
  const [postgres, mariadb, redis, service] = await Promise.all([
    startPostgres(),
    startMariadb(),
    startRedis(),
    startGuardedService(),
  ]);
  closing.push(
    () => postgres.stop(),
    () => mariadb.stop(),
    () => redis.stop(),
    () => service[Symbol.asyncDispose](),
  );
  urls.postgres = `postgres://postgres@127.0.0.1:${postgres.port}/postgres`;
  urls.mysql = `mysql://root@127.0.0.1:${mariadb.port}/test`;
  urls.redis = `redis://127.0.0.1:${redis.port}`;
  urls.http = service.url;
  for (const url of Object.values(urls)) await prepareGuarded(url);
  await Promise.all(STALLS.map((stall) => meet(stall)));
  // Three servers, and processes that load the clients of all of them.
}, 180_000);
afterAll(async () => {
  for (const close of closing.toReversed()) await close();
});

describe.each(RESOURCES)('%s', (resource) => {
  test.each(STALLS)('a holder that is %s is refused when it wakes up, and no update is lost', (stall) => {
    const outcome = outcomes.get(nameOf(resource, stall, true));
    expect(outcome).toMatchObject({ held: false, write: 'stale', readAgain: 'stale', final: 1 });
  });

  test.each(STALLS)('without the guard, a holder that is %s overwrites the update of its successor', (stall) => {
    // Both were acknowledged, and one is there.
    expect(outcomes.get(nameOf(resource, stall, false))).toMatchObject({ held: false, write: 'ok', final: 1 });
  });
});

function nameOf(resource: string, stall: string, fenced: boolean): string {
  return `${resource}-${stall}-${fenced ? 'fenced' : 'open'}`;
}

async function meet(stall: (typeof STALLS)[number]): Promise<void> {
  const cases = RESOURCES.flatMap((resource) =>
    [true, false].map((fenced) => ({ name: nameOf(resource, stall, fenced), url: urls[resource], fenced })),
  );
  const setup: HolderSetup = {
    ...{ stall, cases, locks: `sqlite:${join(folder, `${stall}.db`)}` },
    wakeFile: join(folder, `${stall}.wake`),
  };
  const holder = fork(join(import.meta.dirname, 'stalled-holder.ts'), [JSON.stringify(setup)], {
    execArgv: ['--import', 'tsx'],
  });
  try {
    await heard(holder, 'read');
    if (stall === 'stopped') holder.kill('SIGSTOP');
    // The successor is not to lose anything, however slow the machine.
    await using locks = new Holdfast(setup.locks, { ttl: '30s' });
    await Promise.all(cases.map((each) => succeed(locks, each)));
    writeFileSync(setup.wakeFile, '');
    holder.kill('SIGCONT');
    for (const outcome of (await heard(holder, 'woke')).outcomes)
      outcomes.set(outcome.name, {
        ...outcome,
        final: await finalOf(cases.find(({ name }) => name === outcome.name)!),
      });
  } finally {
    holder.kill('SIGKILL');
  }
}

/** The next holder: it is granted the lock once the lease of the first has ended, and adds one. */
async function succeed(locks: Holdfast, { name, url, fenced }: Case): Promise<void> {
  const guarded = guardedBy(url);
  await locks.mutex(name).run({ timeout: '60s' }, async ({ token }) => {
    const access = { name, token: fenced ? token : undefined, shared: false };
    expect(await guarded.read(access)).toEqual({ ok: true, value: 0 });
    expect(await guarded.write(access, 1)).toEqual({ ok: true, value: 1 });
  });
  await guarded.close();
}

async function finalOf({ name, url }: Case): Promise<number> {
  const guarded = guardedBy(url);
  const final = await guarded.read({ name, token: undefined, shared: false });
  await guarded.close();
  return final.ok ? final.value : -1;
}

async function heard<S extends FromHolder['say']>(
  holder: ChildProcess,
  say: S,
): Promise<Extract<FromHolder, { readonly say: S }>> {
  const ended = once(holder, 'exit').then(() => {
    throw new Error(`The holder ended before it said ${say}.`);
  });
  const [message] = (await Promise.race([once(holder, 'message'), ended])) as [FromHolder];
  expect(message.say).toBe(say);
  return message as Extract<FromHolder, { readonly say: S }>;
}
