/**
 * What a stranger does who shares the store with us: it adds what makes no sense beside what is ours, and tells whoever listens
 * things that are not true. It takes nothing away, so nothing of ours may be lost by it.
 */
import type { Random } from '../simulation/random.js';

/** Is part of the name of everything that it adds. */
export const STRANGER = 'stranger';

export interface Visit {
  readonly random: Random;
  readonly namespace: string;
  readonly names: readonly string[];
  /** Ids of claims that stand in line now; anybody can see them. */
  readonly claims: readonly string[];
}

const HUGE = '9223372036854775807';

export const GARBAGE: readonly string[] = [
  '',
  ' ',
  '{',
  'null',
  '[]',
  '{"__proto__":{}}',
  '%zz',
  '-1',
  HUGE,
  `${HUGE}0`,
  'x'.repeat(7_000),
];

/** What it has overheard, with the grants told once more: as they were, and as if they were about these claims. */
export function replays({ claims }: Visit, overheard: readonly string[]): string[] {
  const grants = overheard.filter((text) => /^granted \S+ \d+ \S+$/.test(text)).slice(-5);
  const told = grants.flatMap((text) => {
    const [, , token, nonce] = text.split(' ');
    return claims.map((id) => `granted ${id} ${token} ${nonce}`);
  });
  return [...grants, ...told];
}

/** To an inbox: what is no message, and grants and evictions that nobody has made. */
export function messages({ claims, random }: Visit): string[] {
  const ids = ['x', '', ...(claims.length > 0 ? [random.pick(claims), random.pick(claims)] : [])];
  const forged = ids.flatMap((id) => [
    `granted ${id} 5`,
    `granted ${id} 5 ${'0'.repeat(32)}`,
    `granted ${id} 1700000000000000 ${id}`,
    `granted ${id} y`,
    `granted ${id}`,
    `granted ${id} ${HUGE}0`,
    `evicted ${id} notjson`,
    `evicted ${id} {}`,
    `evicted ${id}`,
    `lost ${id}`,
  ]);
  return [...forged, ...GARBAGE];
}

/** A name in the stranger's own words. */
export function strangeName(random: Random): string {
  return `${STRANGER} ${random.int(50)}`;
}
