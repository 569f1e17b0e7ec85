import type { Traits } from '../index.js';
import type { Stage } from './stage.js';

/** One promise, and how to see from outside that it is kept. */
export interface Case {
  /** The promise itself: it becomes the test's title. */
  readonly name: string;
  /** Why this can't run on such an engine; undefined: it can. */
  readonly needs?: Need;
  /** Speaks to the raw engine, so it can't run where the engine was given as a URL. */
  readonly protocol?: true;
  run(stage: Stage): Promise<void>;
}

/** A maxHold whose function should still begin before it is over, also where the event loop comes round seldom. */
export const BRIEF_HOLD_MS = 300;

export type Need = (traits: Traits) => string | undefined;

export const fifo: Need = ({ order }) => (order === 'fifo' ? undefined : 'the engine keeps no order');

export const listing: Need = ({ listing }) => (listing ? undefined : 'the engine can’t list its lines');

export const registers: Need = ({ registers }) => (registers ? undefined : 'the engine has no registers');

export const forgets: Need = ({ forgets }) => (forgets ? undefined : 'the engine keeps its registers for ever');

export const shared: Need = ({ sharing }) => (sharing === 'exclusive' ? 'the engine has only mutexes' : undefined);

export const weighted: Need = ({ sharing }) => (sharing === 'weighted' ? undefined : 'the engine has no semaphores');

/** All of them; the first that is not met is the reason. */
export function every(...needs: readonly Need[]): Need {
  return (traits) => {
    for (const need of needs) {
      const reason = need(traits);
      if (reason !== undefined) return reason;
    }
    return undefined;
  };
}

/** Cases that have something in common: what all of them need, beside what each needs itself. */
export function group(common: Pick<Case, 'needs' | 'protocol'>, cases: readonly Case[]): readonly Case[] {
  return cases.map((one) => {
    const needs = every(...[common.needs, one.needs].filter((need) => need !== undefined));
    return Object.assign({}, common, one, { needs });
  });
}
