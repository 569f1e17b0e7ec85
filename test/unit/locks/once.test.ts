import { expect, test } from 'vitest';
import type { EngineSource, Registers } from '../../../src/core/engine.js';
import { memory } from '../../../src/engines/memory/index.js';
import { Holdfast } from '../../../src/index.js';
import { VirtualClock } from '../virtual-clock.js';

/** The same engine, whose registers are made over. */
function withRegisters(source: EngineSource, make: (registers: Registers) => Partial<Registers>): EngineSource {
  return {
    ...source,
    connect: async (setup) => {
      const engine = await source.connect(setup);
      const same: Registers = {
        read: (name, fence) => engine.registers!.read(name, fence),
        write: (name, value, token, keepMs) => engine.registers!.write(name, value, token, keepMs),
      };
      return {
        open: (options, listener) => engine.open(options, listener),
        inspect: (query) => engine.inspect!(query),
        registers: { ...same, ...make(same) },
        [Symbol.asyncDispose]: () => engine[Symbol.asyncDispose](),
      };
    },
  };
}

/** What was noted has another age. */
function aged(source: EngineSource, ageMs: number): EngineSource {
  return withRegisters(source, (registers) => ({
    read: async (name, fence) => {
      const read = await registers.read(name, fence);
      return read.ok && read.value ? { ok: true, value: { ...read.value, ageMs } } : read;
    },
  }));
}

test.each([
  ['a day ahead was by a clock that was wrong, and forbids nothing', -86_400_000, true],
  ['a little ahead is of a run just now', -1_000, false],
  ['just now forbids another', 1_000, false],
  ['longer ago than atLeast forbids nothing', 60_001, true],
])('a run that was noted %s', async (_, ageMs, ran) => {
  await using locks = new Holdfast(aged(memory(`once-${ageMs}`), ageMs));
  await locks.once('nightly', { atLeast: '1m' }, () => {});
  expect(await locks.once('nightly', { atLeast: '1m' }, () => 'done')).toMatchObject({ ran });
});

test('two runs never begin less than atLeast apart, however long an answer is on its way', async () => {
  const clock = new VirtualClock();
  const slow = withRegisters(memory('slow-notes'), (registers) => ({
    write: async (...note) => {
      const written = await registers.write(...note);
      await new Promise<void>((resolve) => clock.timer(200, resolve));
      return written;
    },
  }));
  await using first = new Holdfast(slow, { clock });
  await using second = new Holdfast(memory('slow-notes'), { clock });
  const starts: number[] = [];
  const run = (locks: Holdfast): Promise<unknown> =>
    locks.once('nightly', { atLeast: '1s' }, () => starts.push(clock.now()));
  const running = run(first);
  for (let tries = 0; starts.length < 2 && tries < 500; tries += 1) {
    await clock.advance(10);
    await run(second);
  }
  await running;
  const [one, two] = starts as [number, number];
  expect(two - one).toBeGreaterThanOrEqual(1_000);
  expect(two - one).toBeLessThan(1_500);
});

test('a run is noted before it begins, and its lock is kept until it is noted that it has begun', async () => {
  const clock = new VirtualClock();
  const told: string[] = [];
  const slow = withRegisters(memory('noted-first'), (registers) => ({
    write: async (...note) => {
      await new Promise<void>((resolve) => clock.timer(200, resolve));
      const written = await registers.write(...note);
      told.push('noted');
      return written;
    },
  }));
  await using locks = new Holdfast(slow, { clock });
  const running = locks.once('nightly', { atLeast: '1s' }, () => told.push('began')).finally(() => told.push('ended'));
  await clock.advance(1_000);
  await running;
  expect(told).toEqual(['noted', 'began', 'noted', 'ended']);
});

test('a run counts though it could not be noted again that it has begun', async () => {
  let writes = 0;
  const failing = withRegisters(memory('noted-once'), (registers) => ({
    write: (...note) => ((writes += 1), writes > 1 ? Promise.reject(new Error('reset')) : registers.write(...note)),
  }));
  await using locks = new Holdfast(failing);
  const once = (): Promise<unknown> => locks.once('nightly', { atLeast: '1m' }, () => 'done');
  expect(await once()).toEqual({ ran: true, value: 'done' });
  expect(await once()).toEqual({ ran: false });
});

test('a run whose age is atLeast to the millisecond still forbids another, because engines round', async () => {
  await using locks = new Holdfast(aged(memory('rounded'), 60_000));
  await locks.once('nightly', { atLeast: '1m' }, () => {});
  expect(await locks.once('nightly', { atLeast: '1m' }, () => {})).toEqual({ ran: false });
});

test('an age is never below zero for users', async () => {
  await using locks = new Holdfast(aged(memory('ages'), -5_000));
  await using lease = await locks.mutex('a').acquire();
  await locks.register('a').set('x', lease);
  expect((await locks.register('a').get())?.age).toBe(0);
});

test('half of a surrogate pair is no value', async () => {
  await using locks = new Holdfast('memory:surrogates');
  await using lease = await locks.mutex('a').acquire();
  await expect(locks.register('a').set('\ud800', lease)).rejects.toMatchObject({ code: 'HOLDFAST_CONFIG' });
  await expect(locks.election('b').campaign({ value: '\udc00' })).rejects.toMatchObject({ code: 'HOLDFAST_CONFIG' });
});
