import { describe, expect, onTestFinished, test } from 'vitest';
import { currentFrame } from '../../../src/core/reentrancy.js';
import { Holdfast } from '../../../src/index.js';

describe('a job that starts its next run inside its last one', () => {
  test('is inside of one run only, however often it has run', async () => {
    await using locks = new Holdfast('memory:self-starting');
    const depths: number[] = [];
    await new Promise<void>((resolve, reject) => {
      const next = (): void => {
        const ran = locks.mutex('job').run(() => {
          depths.push([...currentFrame()!.chain()].length);
          setImmediate(depths.length < 500 ? next : resolve);
        });
        ran.catch(reject);
      };
      next();
    });
    expect(new Set(depths)).toEqual(new Set([1]));
  });
});

describe('a chain of waits', () => {
  test('may be as long as waiters are allowed, and nobody in it is refused', async () => {
    const length = 10_000;
    const locks = new Holdfast('memory:chain', { ttl: '1m', maxWaiters: length + 2 });
    onTestFinished(() => locks.close({ drain: 0 }));
    let inside = 0;
    let [allInside, endLast] = [(): void => {}, (): void => {}];
    const begun = new Promise<void>((resolve) => (allInside = resolve));
    const asked = new Promise<void>((resolve) => (endLast = resolve));
    const link = (at: number): Promise<void> =>
      locks.mutex(`link ${at}`).run(async () => {
        inside += 1;
        if (inside === length) allInside();
        await begun;
        await (at + 1 < length ? locks.mutex(`link ${at + 1}`).run(() => {}) : asked);
      });
    // From the last on, so that every wait finds those behind it waiting already.
    const links = Array.from({ length }, (_, index) => link(length - 1 - index));
    // And one that is itself waited for, so that all of them have to be looked at.
    const asker = locks.mutex('asker').run(async () => {
      await begun;
      await new Promise((resolve) => setImmediate(resolve));
      const waiting = locks.mutex('link 0').run(() => {});
      endLast();
      await waiting;
    });
    const behind = locks.mutex('behind').run(async () => (await begun, locks.mutex('asker').run(() => {})));
    await Promise.all([...links, asker, behind]);
  });
});
