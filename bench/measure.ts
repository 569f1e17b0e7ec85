/**
 * Two implementations of one task, compared inside one process.
 *
 * Machines change speed while they run (heat, neighbours, garbage), so a figure taken now says little about one taken a
 * minute later. Hence the two sides take turns in short blocks, each block pair gives one ratio, and the median of the
 * ratios is the result. The order inside a pair alternates, so that neither side always runs in the other's wake.
 */
import { setImmediate as nextTurn } from 'node:timers/promises';

export interface Contest {
  readonly name: string;
  /** How many operations one call of a side performs. */
  readonly operations: number;
  readonly ours: () => Promise<unknown>;
  readonly peer: () => Promise<unknown>;
  /** The ratio that we want to reach. */
  readonly goal?: number;
  /** How often each side takes its turn. Less where a side is slow. */
  readonly pairs?: number;
}

export interface Result {
  readonly name: string;
  /** Operations per second, the median of the blocks. */
  readonly ours: number;
  readonly peer: number;
  /** Our speed by the peer's, block by block. */
  readonly ratio: Spread;
  readonly goal: number | undefined;
}

interface Spread {
  readonly least: number;
  readonly lowerQuartile: number;
  readonly median: number;
  readonly upperQuartile: number;
  readonly most: number;
}

/** Long against the clock's resolution, short against the ttl: between blocks the event loop serves the beats. */
const BLOCK_MS = 25;
const WARM_UP_PAIRS = 8;
const PAIRS = 81;

export async function measure({ name, operations, ours, peer, goal, pairs: count = PAIRS }: Contest): Promise<Result> {
  const calls = await callsPerBlock(ours, peer);
  const pairs: { ours: number; peer: number }[] = [];
  for (let pair = -Math.min(WARM_UP_PAIRS, count); pair < count; pair += 1) {
    const oursFirst = pair % 2 === 0;
    const first = await block(oursFirst ? ours : peer, calls);
    const second = await block(oursFirst ? peer : ours, calls);
    if (pair >= 0) pairs.push(oursFirst ? { ours: first, peer: second } : { ours: second, peer: first });
  }
  const perSecond = (ms: number): number => (operations * calls * 1000) / ms;
  return {
    name,
    ours: perSecond(spread(pairs.map((pair) => pair.ours)).median),
    peer: perSecond(spread(pairs.map((pair) => pair.peer)).median),
    ratio: spread(pairs.map((pair) => pair.peer / pair.ours)),
    goal,
  };
}

/** As many calls as make the slower side's block about BLOCK_MS long. */
async function callsPerBlock(ours: Contest['ours'], peer: Contest['peer']): Promise<number> {
  let calls = 1;
  for (;;) {
    const ms = Math.max(await block(ours, calls), await block(peer, calls));
    if (ms >= BLOCK_MS / 2) return Math.max(1, Math.round((calls * BLOCK_MS) / ms));
    calls *= 2;
  }
}

/** The milliseconds that so many calls take, one after the other. */
async function block(side: () => Promise<unknown>, calls: number): Promise<number> {
  await nextTurn();
  const startedAt = performance.now();
  for (let call = 0; call < calls; call += 1) await side();
  return performance.now() - startedAt;
}

function spread(values: readonly number[]): Spread {
  const sorted = [...values].sort((a, b) => a - b);
  const at = (share: number): number => sorted[Math.round(share * (sorted.length - 1))]!;
  return { least: at(0), lowerQuartile: at(0.25), median: at(0.5), upperQuartile: at(0.75), most: at(1) };
}

export async function repeat(times: number, run: () => Promise<unknown>): Promise<void> {
  for (let time = 0; time < times; time += 1) await run();
}

export async function together(count: number, run: (at: number) => Promise<unknown>): Promise<void> {
  await Promise.all(Array.from({ length: count }, (_, at) => run(at)));
}
