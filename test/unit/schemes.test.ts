import { describe, expect, test } from 'vitest';
import { systemClock } from '../../src/core/clock.js';
import { ConfigError } from '../../src/core/errors.js';
import { traits as memoryTraits } from '../../src/engines/memory/traits.js';
import { Holdfast } from '../../src/index.js';
import { engineFromUrl } from '../../src/schemes.js';

describe('a URL picks the engine', () => {
  test('traits are known without loading anything', () => {
    expect(engineFromUrl('memory:').traits).toEqual(memoryTraits);
    expect(engineFromUrl('memory:?strategy=queue').traits).toEqual(memoryTraits);
  });

  test('the engine is loaded when it is connected', async () => {
    await using engine = await engineFromUrl('memory:schemes-load').connect({ namespace: 'n', clock: systemClock });
    expect(engine).toHaveProperty('open');
  });

  test.each([['nosuch://h'], ['constructor:'], ['toString://h']])(
    '%s is unknown, and the error lists what is known',
    (url) => {
      expect(() => engineFromUrl(url)).toThrow(ConfigError);
      expect(() => engineFromUrl(url)).toThrow(/There is no engine for ".*:"\. Known: .*\bmemory:/);
    },
  );

  test.each([['nosuch'], ['constructor'], ['']])(
    'an unknown strategy %j is named, beside those that are known',
    (strategy) => {
      expect(() => engineFromUrl(`memory:?strategy=${strategy}`)).toThrow(
        `memory: has no strategy "${strategy}". Known: queue.`,
      );
    },
  );

  test('an unknown parameter is named, beside those that are known: a typo must not pass in silence', () => {
    expect(() => engineFromUrl('memory:?stratgey=queue')).toThrow(
      'memory: does not know the parameter "stratgey". Known: strategy',
    );
  });

  test('memory://name is refused: it would be the same space as memory:', () => {
    expect(() => engineFromUrl('memory://other')).toThrow("Write 'memory:name', without '//'");
  });
});

describe('memory spaces', () => {
  test('instances of one URL share locks; another space and another namespace are apart', async () => {
    await using one = new Holdfast('memory:schemes');
    await using same = new Holdfast('memory:schemes');
    await using other = new Holdfast('memory:schemes-other');
    await using apart = new Holdfast('memory:schemes', { namespace: 'apart' });
    await using lease = await one.mutex('m').acquire();
    expect(lease.held).toBe(true);
    expect(await same.mutex('m').tryAcquire()).toBeUndefined();
    expect((await other.mutex('m').tryAcquire())?.held).toBe(true);
    expect((await apart.mutex('m').tryAcquire())?.held).toBe(true);
  });

  test('memory:other is not memory:', async () => {
    await using one = new Holdfast('memory:', { namespace: 'schemes-test' });
    await using other = new Holdfast('memory:other', { namespace: 'schemes-test' });
    await one.mutex('m').acquire();
    expect((await other.mutex('m').tryAcquire())?.held).toBe(true);
  });
});
