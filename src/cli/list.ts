/** `holdfast ls`, `inspect` and `evict`: who holds what, and the way to take it away. */
import { type ClaimView, Holdfast, type LineView } from '../index.js';
import { EXIT } from './failure.js';
import type { CommonOptions, ListOptions } from './options.js';
import { engineUrl } from './place.js';
import { age, json, printable, quote, table } from './text.js';

export interface Printout {
  readonly exit: number;
  readonly text: string;
}

export function ls({ operands: [prefix], ...options }: ListOptions): Promise<Printout> {
  return withLocks(options, async (locks) => {
    const lines = await collect(locks.inspect(prefix === undefined ? {} : { prefix }));
    lines.sort(byName);
    if (options.json) return { exit: 0, text: json(lines) };
    const rows = lines.flatMap((line) => line.claims.map((claim) => lsRow(line, claim)));
    return { exit: 0, text: rows.length === 0 ? '' : table([['NAME', 'KIND', 'STATE', 'LABEL', 'AGE'], ...rows]) };
  });
}

export function inspect({ operands, ...options }: ListOptions): Promise<Printout> {
  const name = operands[0]!;
  return withLocks(options, async (locks) => {
    const lines = await collect(locks.inspect({ name }));
    lines.sort(byName);
    if (options.json) return { exit: 0, text: json(lines) };
    if (lines.length === 0) return { exit: 0, text: `${quote(name)} is free\n` };
    const rows = lines.flatMap((line) => line.claims.map((claim) => inspectRow(line, claim)));
    return { exit: 0, text: table([['CLAIM', 'KIND', 'STATE', 'TOKEN', 'LABEL', 'AGE'], ...rows]) };
  });
}

export function evict({ operands, reason, ...options }: ListOptions): Promise<Printout> {
  const [name, claimId] = operands as [string, string];
  return withLocks(options, async (locks) => {
    const evicted = await locks.evict(name, claimId, reason);
    const said = evicted ? 'evicted: it goes when its holder has let go, or after its ttl' : 'there is no such claim';
    return {
      exit: evicted ? 0 : EXIT.noSuchClaim,
      text: options.json ? json({ name, claim: claimId, evicted }) : `${quote(name)} ${printable(claimId)}: ${said}\n`,
    };
  });
}

async function withLocks(options: CommonOptions, work: (locks: Holdfast) => Promise<Printout>): Promise<Printout> {
  await using locks = new Holdfast(engineUrl(options.url, process.env), { label: 'holdfast' });
  return await work(locks);
}

async function collect(lines: AsyncIterable<LineView>): Promise<LineView[]> {
  const all: LineView[] = [];
  for await (const line of lines) all.push(line);
  return all;
}

function byName(a: LineView, b: LineView): number {
  if (a.name !== b.name) return a.name < b.name ? -1 : 1;
  return a.kind < b.kind ? -1 : 1;
}

function lsRow(line: LineView, claim: ClaimView): string[] {
  return [line.name, kindOf(line, claim), claim.state, claim.label, ageOf(claim)];
}

function inspectRow(line: LineView, claim: ClaimView): string[] {
  const token = claim.token?.toString() ?? '-';
  return [claim.id, kindOf(line, claim), claim.state, token, claim.label, ageOf(claim)];
}

/** `lock`, `shared`, or a semaphore's `2/4`: two of its four permits. */
function kindOf({ kind, capacity }: LineView, { weight }: ClaimView): string {
  if (kind === 'semaphore') return `semaphore:${weight}/${capacity}`;
  return weight === capacity ? 'lock' : 'shared';
}

function ageOf({ since }: ClaimView): string {
  return age(Date.now() - since);
}
