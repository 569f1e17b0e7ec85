/** What anybody may have said is a reason to look for ourselves: soon, and never more often because more is said. */
import { expect, test } from 'vitest';
import { settled } from '../../virtual-clock.js';
import { acquire, beatInFlight, clock, engine, held, locks, lossOf, newForEachTest, TTL_MS } from './kit.js';

newForEachTest();

test('a hint makes the session look at once', async () => {
  await locks.mutex('m').acquire();
  const { session } = engine;
  expect(session.beats).toHaveLength(0);
  session.listener.hinted();
  await clock.advance(0);
  await settled();
  expect(session.beats).toHaveLength(1);
});

test('what the look finds counts: a grant, and the loss of a claim', async () => {
  const lease = await locks.mutex('kept').acquire();
  engine.now({ enter: () => Promise.resolve({ state: 'waiting' }) });
  const acquiring = acquire();
  await settled();
  const { session } = engine;
  engine.now({ beat: () => Promise.resolve({ alive: true, index: [held(session.entered[1]!.id, 7n)] }) });
  session.listener.hinted();
  await clock.advance(1);
  await settled();
  expect(acquiring.value!.held).toBe(true);
  expect(lossOf(lease)).toBe('session');
});

test('a flood of hints is no flood of beats', async () => {
  await locks.mutex('m').acquire();
  const { session } = engine;
  for (let ms = 0; ms < 1_000; ms += 1) {
    for (let count = 0; count < 5; count += 1) session.listener.hinted();
    await clock.advance(1);
  }
  await settled();
  expect(session.beats.length).toBeGreaterThan(5);
  expect(session.beats.length).toBeLessThan(12);
});

test('a hint while a beat is under way is looked at after it', async () => {
  await locks.mutex('m').acquire();
  const reply = await beatInFlight();
  const { session } = engine;
  const before = session.beats.length;
  session.listener.hinted();
  await clock.advance(200);
  expect(session.beats).toHaveLength(before);
  reply.resolve({ alive: true });
  await settled();
  await clock.advance(100);
  await settled();
  expect(session.beats).toHaveLength(before + 1);
});

test('a hint for a session that has ended does nothing', async () => {
  const lease = await locks.mutex('m').acquire();
  const { session } = engine;
  session.listener.ended({ reason: 'session' });
  session.listener.hinted();
  await clock.advance(TTL_MS / 30);
  expect(session.beats).toHaveLength(0);
  expect(lease.held).toBe(false);
});
