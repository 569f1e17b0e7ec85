/**
 * `npm run faults -- [engine…] [--nemesis a,b] [--seconds N] [--seed N] [--ttl MS] [--stalls SHARE]`
 *
 * Puts every engine (or those named) under every nemesis that is meaningful there, each for so many seconds, and judges
 * what happened. `--mixed` strikes with all of them in one run; `--short` is what every change has to pass. A run that
 * fails keeps its history under .cache/faults; `npm run faults -- replay FOLDER` judges it again.
 *
 * `npm run faults:peers` does the same stalls to other libraries, for comparison.
 */
import { execFileSync } from 'node:child_process';
import { existsSync, mkdirSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { join, relative, resolve } from 'node:path';
import { parseArgs } from 'node:util';
import type { Traits } from 'holdfast';
import { Network } from '../servers/network.js';
import { run } from './coordinator.js';
import { type HistoryEvent, readHistory } from './history.js';
import { NEMESES, whyNotApart } from './nemeses.js';
import { report } from './report.js';
import { type Target, TARGETS, type TargetKind } from './targets.js';
import { timeline } from './timeline.js';
import { controlOf, judge, type Verdict } from './verdict.js';
import type { LockKind } from './worker-setup.js';
import { traitsOf } from './workload.js';

const ROOT = resolve(import.meta.dirname, '../..');
const FOLDER = join(ROOT, '.cache/faults');
const PEERS = join(ROOT, '.cache/peers');

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    nemesis: { type: 'string' },
    seconds: { type: 'string', default: '20' },
    seed: { type: 'string', default: `${Date.now() % 1_000_000}` },
    ttl: { type: 'string', default: '1000' },
    stalls: { type: 'string', default: '0.05' },
    mixed: { type: 'boolean', default: false },
    short: { type: 'boolean', default: false },
    peers: { type: 'boolean', default: false },
  },
});

interface Plan {
  readonly engine: string;
  readonly kind: TargetKind;
  readonly target: Target;
  readonly traits: Traits;
  readonly lock: LockKind;
  readonly nemeses: readonly string[];
  readonly seconds: number;
  readonly seed: number;
}

/** How often a run that proves nothing is made again, each time with another seed. */
const AGAIN = 3;
const SEED = Number(values.seed);

const outcomes: string[] = [];
const notRun: string[] = [];
const controls = new Map<string, readonly HistoryEvent[]>();

if (positionals[0] === 'replay') replay(positionals.slice(1));
else if (values.peers) await comparePeers();
else await torture(positionals.length > 0 ? positionals : values.short ? shortOnes() : Object.keys(TARGETS));
process.exitCode = outcomes.every((outcome) => outcome === 'passed') ? 0 : 1;

async function torture(engines: readonly string[]): Promise<void> {
  for (const engine of engines) {
    const kind = TARGETS[engine] ?? fail(`There is no engine ${engine}. Known: ${Object.keys(TARGETS).join(', ')}.`);
    if (values.short && !kind.short) fail(`${engine} has no short run. Engines that have: ${shortOnes().join(', ')}.`);
    const names = chosen(kind);
    await tortureOn(
      engine,
      kind,
      names.filter((name) => !NEMESES[name]!.apart),
    );
    await tortureApart(
      engine,
      kind,
      names.filter((name) => NEMESES[name]!.apart),
    );
  }
}

async function tortureOn(engine: string, kind: TargetKind, names: readonly string[]): Promise<void> {
  if (names.length === 0) return;
  await using target = await kind.start();
  const on = { engine, kind, target, traits: await traitsOf(target), seed: SEED };
  const nemeses = names.filter((name) => isMeaningful(name, on));
  const seconds = values.short ? kind.short!.seconds : Number(values.seconds);
  const control = await brokenControl({ ...on, lock: 'naive', nemeses: ['stall'], seconds: controlSeconds(seconds) });
  const groups = values.mixed || values.short ? [nemeses] : nemeses.map((name) => [name]);
  for (const group of groups)
    if (group.length > 0) await trial({ ...on, lock: 'holdfast', nemeses: group, seconds }, control);
}

/** The same, each server and each worker on a host of its own. */
async function tortureApart(engine: string, kind: TargetKind, names: readonly string[]): Promise<void> {
  const { startApart } = kind;
  const reason = whyNotApart(kind);
  if (!startApart || reason !== undefined) return names.forEach((name) => tellNotRun(engine, name, reason!));
  if (names.length === 0) return;
  await using network = await Network.start();
  await tortureOn(engine, { ...kind, start: () => startApart(network) }, names);
}

function shortOnes(): readonly string[] {
  return Object.keys(TARGETS).filter((engine) => TARGETS[engine]!.short);
}

/** A tenth of the time, but long enough to break. */
function controlSeconds(seconds: number): number {
  return Math.max(3, seconds / 10);
}

function chosen({ short }: TargetKind): readonly string[] {
  const names = values.nemesis?.split(',') ?? (values.short ? short!.nemeses : Object.keys(NEMESES));
  const unknown = names.find((name) => !Object.hasOwn(NEMESES, name));
  if (unknown !== undefined) fail(`There is no nemesis ${unknown}. Known: ${Object.keys(NEMESES).join(', ')}.`);
  return names;
}

function isMeaningful(
  name: string,
  { engine, target, kind, traits }: Pick<Plan, 'engine' | 'target' | 'kind' | 'traits'>,
): boolean {
  const reason = NEMESES[name]!.whyNot(target, kind, traits);
  if (reason !== undefined) tellNotRun(engine, name, reason);
  return reason === undefined;
}

function tellNotRun(engine: string, name: string, reason: string): void {
  notRun.push(`${name} on ${engine}: ${reason}`);
  console.log(`${engine}: ${name} not run: ${reason}`);
}

/**
 * The same workload on a lock that is known to be broken, until it was seen to break: a short run may spare it by chance.
 * It needs no engine: once is enough for all that are alike.
 */
async function brokenControl(plan: Plan): Promise<readonly HistoryEvent[]> {
  const guarded = plan.target.guardedUrl === undefined ? '' : plan.engine;
  const alike = `${plan.kind.processes} ${plan.seconds} ${guarded}`;
  let history = controls.get(alike);
  for (let more = 0; !history || (!controlOf(history).violated && more <= AGAIN); more += 1) {
    const next = { ...plan, seed: plan.seed + more };
    history = readHistory(await runIn(next));
    rmSync(folderOf(next), { recursive: true, force: true });
  }
  controls.set(alike, history);
  return history;
}

/** One that is void is made again: that no fault came while a lease was held says nothing about the engine. */
async function trial(plan: Plan, control: readonly HistoryEvent[] | undefined): Promise<Verdict> {
  for (let more = 0; ; more += 1) {
    const next = { ...plan, seed: plan.seed + more };
    const verdict = judge(readHistory(await runIn(next)), control);
    const folder = folderOf(next);
    if (control)
      writeFileSync(join(folder, 'control.jsonl'), control.map((event) => `${JSON.stringify(event)}\n`).join(''));
    const again = verdict.outcome === 'void' && verdict.control?.violated === true && more < AGAIN;
    conclude(verdict, plan.nemeses, folder);
    if (!again) {
      outcomes.push(verdict.outcome);
      return verdict;
    }
  }
}

function runIn(plan: Plan): Promise<string[]> {
  const folder = folderOf(plan);
  rmSync(folder, { recursive: true, force: true });
  return run({
    ...plan,
    ttlMs: Math.max(Number(values.ttl), plan.traits.minTtlMs),
    stalls: Number(values.stalls),
    peers: PEERS,
    folder,
  });
}

function folderOf({ engine, lock, nemeses, seed }: Plan): string {
  return join(FOLDER, `${engine}-${lock}-${nemeses.length > 1 ? 'mixed' : nemeses[0]}-${seed}`);
}

/** The report stays; the history only of a run that is not green, or in which something was counted. */
function conclude(verdict: Verdict, nemeses: readonly string[], folder: string): void {
  const { outcome, figures, failures, counted, voidBecause, run: judged } = verdict;
  writeFileSync(join(folder, 'timeline.svg'), timeline(verdict));
  const again = `npm run faults -- replay ${relative(ROOT, folder)}`;
  writeFileSync(join(folder, 'report.md'), report(verdict, { timeline: 'timeline.svg', notRun, replay: again }));
  const { granted, faultsOnHolder, counter, register } = figures;
  console.log(
    `${outcome.padEnd(6)} ${judged.info.engine} ${judged.info.lock} (${nemeses.join(', ')}): ${granted} granted, ` +
      `${faultsOnHolder} faults hit a holder, ${register.refused} stale accesses refused, ` +
      `${counter.lost} of ${counter.acknowledged} unfenced updates lost; ${relative(ROOT, folder)}/report.md`,
  );
  for (const { property, what } of failures.slice(0, 5)) console.log(`       ${property}: ${what}`);
  for (const reason of voidBecause) console.log(`       void: ${reason}`);
  if (counted.length > 0) console.log(`       counted, not judged: ${counted.length}`);
  if (outcome !== 'passed' || counted.length > 0) return console.log(`       ${again}`);
  for (const file of readdirSync(folder)) if (!/\.(md|svg)$/.test(file)) rmSync(join(folder, file));
}

function replay(folders: readonly string[]): void {
  for (const folder of folders) {
    const files = readdirSync(folder).filter((file) => file.endsWith('.jsonl'));
    const own = files.filter((file) => file !== 'control.jsonl').map((file) => join(folder, file));
    const control = files.includes('control.jsonl') ? readHistory([join(folder, 'control.jsonl')]) : undefined;
    const verdict = judge(readHistory(own), control);
    conclude(verdict, verdict.run.info.nemeses, folder);
    outcomes.push(verdict.outcome);
  }
}

/** In a folder of their own: never in the product's tree. */
async function comparePeers(): Promise<void> {
  if (!existsSync(join(PEERS, 'node_modules'))) {
    mkdirSync(PEERS, { recursive: true });
    writeFileSync(join(PEERS, 'package.json'), '{ "private": true }\n');
    const packages = ['redlock@5.0.0-beta.2', 'redis-semaphore@5', 'ioredis@5'];
    execFileSync('npm', ['install', '--no-audit', '--no-fund', ...packages], { cwd: PEERS, stdio: 'inherit' });
  }
  const kind = TARGETS['redis']!;
  const rows: string[] = [];
  for (const lock of ['holdfast', 'redlock', 'redis-semaphore', 'naive'] as const) {
    await using target = await kind.start();
    const on = { engine: 'redis', kind, target, traits: await traitsOf(target), seed: SEED };
    const plan: Plan = { ...on, lock, nemeses: ['stall'], seconds: Number(values.seconds) };
    const { figures, failures, counted } = await trial(plan, undefined);
    const broken = [...failures, ...counted];
    const of = (property: string): number => broken.filter((violation) => violation.property === property).length;
    const lost = ((100 * figures.counter.lost) / Math.max(1, figures.counter.acknowledged)).toFixed(1);
    rows.push(
      `| ${lock} | ${figures.granted} | ${figures.faultsOnHolder} | ${of('belief')} | ${of('register')} | ${lost} % |`,
    );
  }
  console.log(
    '\n| lock | granted | stalls of a holder | two believers | breaches of the register | unfenced updates lost |',
  );
  console.log('| --- | --- | --- | --- | --- | --- |');
  console.log(rows.join('\n'));
  // The peers are meant to fail here.
  outcomes.length = 0;
}

function fail(message: string): never {
  console.error(message);
  process.exit(64);
}
