/** A token is from 1 to what fits into 63 bits, whatever a stranger has made the engine count. */
import { describe, expect, test } from 'vitest';
import { EngineError } from '../../../../src/core/errors.js';
import { settled } from '../../virtual-clock.js';
import { acquire, answerBeat, engine, held, locks, newForEachTest } from './kit.js';

newForEachTest();

const HIGHEST = 2n ** 63n - 1n;

test.each([1n, 2n ** 53n - 1n])('the token %s is one', async (token) => {
  engine.now({ enter: () => Promise.resolve({ state: 'held', token }) });
  const lease = await locks.mutex('m').acquire();
  expect(lease.token).toBeGreaterThanOrEqual(1n);
  expect(lease.token).toBeLessThanOrEqual(HIGHEST);
});

describe.each([0n, -1n, 2n ** 53n, 2n ** 63n, 9_999_999_999_999_999_998n, 2n ** 200n])('the token %s', (token) => {
  test('in the answer to an enter is refused, and the claim given back', async () => {
    engine.now({ enter: () => Promise.resolve({ state: 'held', token }) });
    const failed = await locks
      .mutex('m')
      .acquire()
      .catch((error: unknown) => error);
    expect(failed).toBeInstanceOf(EngineError);
    expect(failed).toMatchObject({ retryable: false, message: expect.stringContaining(`${token}`) as string });
    expect(engine.session.left).toEqual([engine.session.entered[0]!.id]);
  });

  test('in a message is refused, and the claim given back', async () => {
    engine.now({ enter: () => Promise.resolve({ state: 'waiting' }) });
    const acquiring = acquire();
    await settled();
    const { session } = engine;
    session.listener.granted(session.entered[0]!.id, token);
    await settled();
    expect(acquiring.error).toBeInstanceOf(EngineError);
    expect(session.left).toEqual([session.entered[0]!.id]);
  });

  test('in the index of a beat is refused, and the claim given back', async () => {
    engine.now({ enter: () => Promise.resolve({ state: 'waiting' }) });
    const acquiring = acquire();
    await settled();
    const { session } = engine;
    await answerBeat([held(session.entered[0]!.id, token)]);
    expect(acquiring.error).toBeInstanceOf(EngineError);
    expect(session.left).toEqual([session.entered[0]!.id]);
  });
});
