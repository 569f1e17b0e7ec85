import { spawnSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Holdfast } from 'holdfast';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { Worker } from './processes.js';

let folder: string;
let url: string;
let workers: Worker[];

beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'holdfast-'));
  url = `sqlite:${join(folder, 'locks.db')}`;
  workers = [];
});

afterEach(async () => {
  await Promise.all(workers.map((worker) => worker.end()));
  rmSync(folder, { recursive: true, force: true });
});

async function start(ttl: string, options?: ConstructorParameters<typeof Worker>[0]): Promise<Worker> {
  const worker = new Worker(options);
  workers.push(worker);
  await worker.ask('open', { url, ttl, label: `worker-${workers.length}` });
  return worker;
}

/** Resolves when the line of this name has that many claims. */
async function standing(name: string, claims: number): Promise<void> {
  const locks = new Holdfast(url);
  while ((await locks.mutex(name).inspect()).claims.length !== claims)
    await new Promise((retry) => setTimeout(retry, 20));
  await locks.close();
}

describe('processes that share a file', () => {
  test('never lose an update: 8 × 200 increments of a plain file', async () => {
    const file = join(folder, 'counter');
    writeFileSync(file, '0');
    const counters = await Promise.all(Array.from({ length: 8 }, () => start('10s')));
    await Promise.all(counters.map((worker) => worker.ask('count', { name: 'counter', file, times: 200 })));
    expect(readFileSync(file, 'utf8')).toBe('1600');
  });

  test('a killed holder is out of the line at once, long before its ttl', async () => {
    const [holder, waiter] = [await start('10m'), await start('10m')];
    const first = await holder.ask<string>('acquire', { name: 'job' });
    const granted = waiter.ask<string>('acquire', { name: 'job' });
    await standing('job', 2);
    holder.signal('SIGKILL');
    // It takes a tenth of a second; without the look at its process it would take ten minutes.
    expect(BigInt(await granted)).toBeGreaterThan(BigInt(first));
  });

  test('a killed waiter is out of the line at once, too', async () => {
    const [holder, waiter, third] = [await start('10m'), await start('10m'), await start('10m')];
    await holder.ask('acquire', { name: 'job' });
    waiter.ask('acquire', { name: 'job' }).catch(() => {});
    await standing('job', 2);
    const granted = third.ask<string>('acquire', { name: 'job' });
    await standing('job', 3);
    waiter.signal('SIGKILL');
    await holder.ask('release');
    await granted;
  });

  test('a holder that was stopped beyond its ttl is overtaken, and knows it before anything else when it wakes', async () => {
    const [holder, next] = [await start('3s'), await start('3s')];
    const first = await holder.ask<string>('acquire', { name: 'job' });
    await holder.ask('write', { name: 'job', value: 'first' });
    holder.signal('SIGSTOP');
    const second = await next.ask<string>('acquire', { name: 'job' });
    expect(BigInt(second)).toBeGreaterThan(BigInt(first));
    await next.ask('write', { name: 'job', value: 'second', present: true });
    holder.signal('SIGCONT');
    expect(await holder.ask('look')).toMatchObject({ held: false, state: 'lost', aborted: true });
    await expect(holder.ask('write', { name: 'job', value: 'stale' })).rejects.toMatchObject({
      code: 'HOLDFAST_STALE_TOKEN',
    });
    expect(await holder.ask('release')).toBe(false);
    const locks = new Holdfast(url);
    expect(await locks.register('job').get()).toMatchObject({ value: 'second' });
    await locks.close();
  });
});

const OWN_PROC = ['--pid', '--fork', '--mount-proc', '--kill-child'];
/** As bwrap and nsenter leave it: /proc is that of the namespace outside, and shows other processes under our pids. */
const OUTER_PROC = OWN_PROC.filter((option) => option !== '--mount-proc');
const mayUnshare = spawnSync('unshare', [...OWN_PROC, 'true']).status === 0;

function inNamespace(options: readonly string[]): ConstructorParameters<typeof Worker>[0] {
  return { execPath: 'unshare', execArgv: [...options, process.execPath] };
}

describe('pid namespaces', () => {
  test('that share a file exclude each other, and judge each other by the ttl', async ({ skip }) => {
    if (!mayUnshare) skip('nobody may make a pid namespace here');
    const file = join(folder, 'counter');
    writeFileSync(file, '0');
    const own = inNamespace(OWN_PROC);
    const counters = [await start('3s', own), await start('3s', own), await start('3s')];
    await Promise.all(counters.map((worker) => worker.ask('count', { name: 'counter', file, times: 60 })));
    expect(readFileSync(file, 'utf8')).toBe('180');
    // The pid of the one means nothing to the other: it must not be taken for dead, and not live for ever.
    await counters[0]!.ask('acquire', { name: 'job' });
    await expect(counters[2]!.ask('acquire', { name: 'job', timeout: 1_500 })).rejects.toMatchObject({
      code: 'HOLDFAST_TIMEOUT',
    });
    await counters[0]!.end();
    await counters[2]!.ask('acquire', { name: 'job' });
  });

  test('whose /proc is not theirs judge nobody by pid: a living holder keeps its lock, a dead one has its ttl', async ({
    skip,
  }) => {
    if (!mayUnshare) skip('nobody may make a pid namespace here');
    // Both of one namespace: two workers that a process inside of it has forked.
    const pair = new Worker({ ...inNamespace(OUTER_PROC) });
    workers.push(pair);
    await pair.ask('fork', { count: 2 });
    const of = <T>(at: number, action: string, args?: object): Promise<T> => pair.ask('relay', { at, action, args });
    for (const at of [0, 1]) await of(at, 'open', { url, ttl: '3s', label: `twin-${at}` });
    await of(0, 'acquire', { name: 'job' });
    await expect(of(1, 'acquire', { name: 'job', timeout: 2_000 })).rejects.toMatchObject({ code: 'HOLDFAST_TIMEOUT' });
    expect(await of(0, 'look')).toMatchObject({ held: true });
    await pair.ask('kill', { at: 0 });
    await of(1, 'acquire', { name: 'job' });
  });
});
