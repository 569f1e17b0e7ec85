import { describe, expect, test } from 'vitest';
import type { Claim } from '../../../../src/core/engine.js';
import { settled } from '../../virtual-clock.js';
import { claimOf, hold, NAME, newForEachTest, session, store, told } from './kit.js';

newForEachTest();

describe('shared slots', () => {
  test('are asked for by all that fit, and by a writer when they have left', async () => {
    const [one, two] = [reading('a'), reading('b')];
    await hold(one);
    await hold(two);
    const writer = claimOf('w');
    expect(await session.enter(writer)).toEqual({ state: 'waiting' });
    // Not past the writer.
    expect(await session.enter(claimOf('c', { weight: 1, wait: false }))).toEqual({ state: 'refused' });
    await session.leave(one);
    await settled();
    expect(told).toEqual([]);
    await session.leave(two);
    await settled();
    expect(told).toEqual(['granted w']);
  });

  test('one who becomes lighter lets those in who fit now', async () => {
    const writer = claimOf('w');
    await hold(writer);
    await session.enter(reading('a'));
    await session.reweigh({ ...writer, weight: 1 });
    await settled();
    expect(told).toEqual(['granted a']);
    expect(store.holders(NAME)).toEqual(['w', 'a']);
  });
});

function reading(id: string): Claim {
  return claimOf(id, { weight: 1 });
}
