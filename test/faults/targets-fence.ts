/**
 * The same locks, but what they protect is real and stands behind its fence: a row in the same database, a row of SQLite, a
 * key of Redis, something behind HTTP. Whether an update of it was lost is judged. Faults of the network are left to the
 * engines themselves: here it is the holder who suffers.
 */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { startGuardedService } from './guarded-service.js';
import { prepareGuarded } from './guards.js';
import type { Target, TargetKind } from './targets.js';

type Start = () => Promise<Target>;

export function fenceTargets(engines: {
  readonly postgres: Start;
  readonly mysql: Start;
  readonly sqlite: Start;
  readonly redis: Start;
}): Readonly<Record<string, TargetKind>> {
  const onServer = (start: Start, url: (port: number) => string): TargetKind => ({
    processes: true,
    start: async () => {
      const target = await start();
      return guarded(target, url(target.server!.port), async () => {});
    },
  });
  return {
    'fence-postgres': onServer(engines.postgres, (port) => `postgres://postgres@127.0.0.1:${port}/postgres`),
    'fence-mysql': onServer(engines.mysql, (port) => `mysql://root@127.0.0.1:${port}/test`),
    'fence-redis': {
      ...onServer(engines.redis, (port) => `redis://127.0.0.1:${port}`),
      // What Redis forgets, the fence forgets with it, and the value too.
      sparesUnder: { flush: ['register'], 'restart-empty': ['register'] },
    },
    'fence-sqlite': {
      processes: true,
      start: async () => {
        const folder = mkdtempSync(join(tmpdir(), 'holdfast-guarded-'));
        return guarded(await engines.sqlite(), `sqlite:${join(folder, 'app.db')}`, async () =>
          rmSync(folder, { recursive: true, force: true }),
        );
      },
    },
    'fence-http': {
      processes: true,
      start: async () => {
        const service = await startGuardedService();
        return guarded(await engines.redis(), service.url, async () => service[Symbol.asyncDispose]());
      },
    },
  };
}

async function guarded(target: Target, url: string, end: () => Promise<void>): Promise<Target> {
  await prepareGuarded(url);
  return {
    ...target,
    guardedUrl: url,
    [Symbol.asyncDispose]: async () => {
      await target[Symbol.asyncDispose]();
      await end();
    },
  };
}
