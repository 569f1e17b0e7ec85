/**
 * `npm run bench` runs every suite, `npm run bench -- memory` one of them.
 *
 * A figure is a ratio: our operations per second by those of a peer that runs beside us in the same process. Ratios
 * travel from machine to machine; operations per second do not.
 */
import { cpus } from 'node:os';
import { type Contest, measure, type Result } from './measure.js';
import * as memcached from './memcached/suite.js';
import * as etcd from './etcd/suite.js';
import * as memory from './memory/suite.js';
import * as mysql from './mysql/suite.js';
import * as postgres from './postgres/suite.js';
import * as redis from './redis/suite.js';
import * as redlock from './redlock/suite.js';
import * as sqlite from './sqlite/suite.js';
import * as sqliteLockfile from './sqlite/lockfile.js';
import * as zookeeper from './zookeeper/suite.js';

interface Suite {
  /** Whom we compare ourselves with. */
  readonly peer: string;
  contests(): AsyncIterable<Contest>;
  /** Figures that are no ratios. */
  facts?(): AsyncIterable<string>;
}

const SUITES: Readonly<Record<string, Suite>> = {
  memory,
  sqlite,
  'sqlite-lockfile': sqliteLockfile,
  redis,
  redlock,
  postgres,
  mysql,
  memcached,
  etcd,
  zookeeper,
};

const HEADINGS = ['', 'holdfast /s', 'peer /s', 'ratio', 'middle half', 'range', 'goal'];

const wanted = process.argv.slice(2);
const unknown = wanted.find((name) => !Object.hasOwn(SUITES, name));
if (unknown === undefined) {
  const cores = cpus();
  console.log(`Node ${process.version}, ${cores.length} cores (${cores[0]?.model.trim() ?? 'unknown'})`);
  for (const [name, suite] of Object.entries(SUITES)) {
    if (wanted.length === 0 || wanted.includes(name)) await report(name, suite);
  }
} else {
  console.error(`There is no suite ${JSON.stringify(unknown)}. Known: ${Object.keys(SUITES).join(', ')}.`);
  process.exitCode = 64;
}

async function report(name: string, suite: Suite): Promise<void> {
  console.log(`\n${name} against ${suite.peer}: ratios are medians of alternating blocks, more is faster\n`);
  const rows = [HEADINGS];
  for await (const contest of suite.contests()) {
    const result = await measure(contest);
    // The table comes at the end: a suite may take minutes.
    console.error(`${result.name}: ${result.ratio.median.toFixed(2)}`);
    rows.push(row(result));
  }
  const widths = HEADINGS.map((_, column) => Math.max(...rows.map((cells) => cells[column]!.length)));
  for (const cells of rows) {
    const line = cells.map((cell, column) => align(cell, column, widths[column]!)).join('  ');
    console.log(line.trimEnd());
  }
  if (suite.facts) for await (const fact of suite.facts()) console.log(`\n${fact}`);
}

function row({ name, ours, peer, ratio, goal }: Result): string[] {
  const middle = range(ratio.lowerQuartile, ratio.upperQuartile);
  const reached = goal === undefined ? '' : `≥ ${goal.toFixed(2)} ${ratio.median >= goal ? 'met' : 'missed'}`;
  return [name, count(ours), count(peer), ratio.median.toFixed(2), middle, range(ratio.least, ratio.most), reached];
}

function range(from: number, to: number): string {
  return `${from.toFixed(2)}–${to.toFixed(2)}`;
}

function count(perSecond: number): string {
  return Math.round(perSecond).toLocaleString('en');
}

function align(cell: string, column: number, width: number): string {
  return column === 0 ? cell.padEnd(width) : cell.padStart(width);
}
