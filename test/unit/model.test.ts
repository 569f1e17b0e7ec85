import { describe, expect, it } from 'vitest';
import { generate } from '../model/generate.js';
import { play } from '../model/play.js';
import { show } from '../model/program.js';
import { PROGRAMS } from '../model/programs.js';

describe('the model of the public API', () => {
  it.each(PROGRAMS)('$name', async ({ program }) => {
    const { violations } = await play(program);
    expect(violations).toEqual([]);
  });

  it('random programs break no promise', async () => {
    const seeds = Array.from({ length: 100 }, (_, index) => index + 1);
    const broken = await Promise.all(
      seeds.map(async (seed) => {
        const program = generate(seed);
        const { violations } = await play(program);
        return violations.length > 0 ? `${show(program)}\nnpm run model -- --seed ${seed}: ${violations[0]!.what}` : [];
      }),
    );
    expect(broken.flat()).toEqual([]);
  });

  it('the same seed plays the same', async () => {
    const [first, second] = [await play(generate(7)), await play(generate(7))];
    expect(second).toEqual(first);
  });
});
