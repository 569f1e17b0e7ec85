/** Registers over compare-and-swap: who comes in between, and answers that are lost. */
import { beforeEach, expect, test } from 'vitest';
import { type Kept, type SeenText, SwappedRegisters, type SwappedTexts } from '../../../src/kit/swapped-registers.js';
import { VirtualClock } from '../virtual-clock.js';

class ScriptedTexts implements SwappedTexts<number> {
  swaps = 0;
  lastKept: Kept | undefined;
  /** Runs once, between a look and the swap that follows. */
  meanwhile: (() => Promise<unknown>) | undefined;
  /** The next swap is carried out, and says that it was not: the first of two, where only the second was answered. */
  loseAnswer = false;
  readonly #texts = new Map<string, SeenText<number>>();

  async look(name: string): Promise<SeenText<number> | undefined> {
    return this.#texts.get(name);
  }

  async swap(name: string, seen: number | undefined, text: string, kept: Kept): Promise<boolean> {
    const { meanwhile } = this;
    this.meanwhile = undefined;
    await meanwhile?.();
    if (this.#texts.get(name)?.version !== seen) return false;
    this.swaps += 1;
    this.lastKept = kept;
    this.#texts.set(name, { text, version: this.swaps });
    if (!this.loseAnswer) return true;
    this.loseAnswer = false;
    return false;
  }
}

let clock: VirtualClock;
let texts: ScriptedTexts;
let registers: SwappedRegisters<number>;

beforeEach(() => {
  clock = new VirtualClock();
  texts = new ScriptedTexts();
  registers = new SwappedRegisters(texts, clock);
});

/** The next beyond what a double can tell from its neighbour. */
const TOKEN = 2n ** 53n;

test('a value comes back with its token and its age, and a register that nobody wrote has none', async () => {
  expect(await registers.read('a')).toEqual({ ok: true, value: undefined });
  expect(await registers.write('a', 'é"', TOKEN + 1n)).toEqual({ ok: true, value: undefined });
  await clock.advance(70);
  expect(await registers.read('a')).toEqual({ ok: true, value: { value: 'é"', token: TOKEN + 1n, ageMs: 70 } });
  expect(await registers.read('b')).toEqual({ ok: true, value: undefined });
});

test('a clock that was set back shows in the age', async () => {
  await registers.write('a', 'x', 1n);
  clock.moveWall(-5_000);
  expect(await registers.read('a')).toMatchObject({ value: { ageMs: -5_000 } });
});

test('an older writer is refused and told the newest token, to the last digit', async () => {
  await registers.write('a', 'new', TOKEN + 1n);
  expect(await registers.write('a', 'old', TOKEN)).toEqual({ ok: false, newest: TOKEN + 1n });
  expect(await registers.read('a')).toMatchObject({ value: { value: 'new' } });
});

test('who has read with a token closes the register to writers that are not newer', async () => {
  await registers.write('a', 'x', 5n);
  expect(await registers.read('a', { token: 5n, mode: 'read' })).toEqual({ ok: false, newest: 5n });
  expect(await registers.read('a', { token: 7n, mode: 'read' })).toMatchObject({ value: { value: 'x', token: 5n } });
  expect(await registers.write('a', 'y', 7n)).toEqual({ ok: false, newest: 7n });
  expect(await registers.write('a', 'y', 8n)).toEqual({ ok: true, value: undefined });
});

test('a token that was shown before costs no swap', async () => {
  await registers.write('a', 'x', 5n);
  await registers.read('a', { token: 5n, mode: 'write' });
  expect(texts.swaps).toBe(1);
});

test('who comes in between is not overwritten: a newer one wins, over an older one it goes on', async () => {
  await registers.write('a', 'x', 1n);
  texts.meanwhile = () => registers.write('a', 'newer', 9n);
  expect(await registers.write('a', 'late', 8n)).toEqual({ ok: false, newest: 9n });
  texts.meanwhile = () => registers.write('a', 'before', 10n);
  expect(await registers.write('a', 'last', 11n)).toEqual({ ok: true, value: undefined });
  expect(await registers.read('a')).toMatchObject({ value: { value: 'last', token: 11n } });
});

test('a swap whose answer was lost is looked up, and the same is written again', async () => {
  texts.loseAnswer = true;
  expect(await registers.write('a', 'x', 3n)).toEqual({ ok: true, value: undefined });
  expect(await registers.read('a')).toMatchObject({ value: { value: 'x', token: 3n } });
  texts.loseAnswer = true;
  expect(await registers.read('a', { token: 4n, mode: 'read' })).toMatchObject({ ok: true, value: { value: 'x' } });
  expect(texts.swaps).toBe(3);
});

test('a write says for how long the text is kept, and whoever only shows a token leaves that as it is', async () => {
  await registers.write('a', 'x', 1n, 500);
  expect(texts.lastKept).toBe(500);
  await registers.read('a', { token: 2n, mode: 'read' });
  expect(texts.lastKept).toBe('as before');
  await registers.write('a', 'y', 3n);
  expect(texts.lastKept).toBe('for ever');
});

test.each(['', 'null', '[]', '{}', '"a"', '{"value":"a","token":"x","at":1,"maxRead":"0","maxWrite":"0"}', 'not JSON'])(
  'what another program has written there (%s) is neither read nor overwritten',
  async (text) => {
    await texts.swap('a', undefined, text, 'for ever');
    for (const work of [registers.read('a'), registers.write('a', 'b', TOKEN)])
      await expect(work).rejects.toMatchObject({ code: 'HOLDFAST_ENGINE', retryable: false });
    expect((await texts.look('a'))!.text).toBe(text);
  },
);
