import { afterEach, describe, expect, test, vi } from 'vitest';
import type { Fence } from '../../../src/core/engine.js';
import { isStale } from '../../../src/core/fence.js';
import { performance } from '../../../src/core/real-time.js';
import { Gate, type GateOptions, type Leave } from '../../../src/fence/gate.js';
import { seededRandom } from '../../servers/seeded-random.js';

const write = (token: number): Fence => ({ token: BigInt(token), mode: 'write' });
const read = (token: number): Fence => ({ token: BigInt(token), mode: 'read' });

function gate(options: Partial<GateOptions> = {}): Gate {
  return new Gate({ most: 100, forgetAfterMs: Infinity, stored: false, ...options });
}

/** One who comes, and what became of it. */
class Visitor {
  leave: Leave | undefined;
  error: unknown;

  constructor(
    at: Gate,
    fence: Fence,
    { withinMs = 60_000, overtaken }: { withinMs?: number; overtaken?: () => void } = {},
  ) {
    at.enter('r', fence, { withinMs, overtaken }).then(
      (leave) => (this.leave = leave),
      (error: unknown) => (this.error = error),
    );
  }

  get state(): string {
    if (this.error) return (this.error as { code: string }).code;
    return this.leave ? 'in' : 'waiting';
  }
}

/** Until nothing is left to do but to wait: a gate whose visitors wake each other never gets there. */
const settled = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));

async function visit(at: Gate, resource: string, token: number, worked: boolean): Promise<void> {
  (await at.enter(resource, write(token), { withinMs: 0 }))(worked);
}

describe('those who wait', () => {
  const pairs: readonly (readonly [string, Fence, readonly Fence[], readonly string[]])[] = [
    ['two writers of one token', write(5), [write(6), write(6)], ['waiting', 'waiting']],
    ['two readers', write(5), [read(6), read(7)], ['waiting', 'waiting']],
    ['two readers of one token', write(5), [read(6), read(6)], ['waiting', 'waiting']],
    ['many writers behind a reader', read(5), Array<Fence>(50).fill(write(6)), Array<string>(50).fill('waiting')],
    ['a reader and a newer writer', write(5), [read(6), write(7)], ['HOLDFAST_STALE_TOKEN', 'waiting']],
    ['a writer and a newer reader', write(5), [write(6), read(7)], ['HOLDFAST_STALE_TOKEN', 'waiting']],
    ['a writer and a newer writer', write(5), [write(6), write(7)], ['HOLDFAST_STALE_TOKEN', 'waiting']],
  ];

  test.each(pairs)('%s stand still, and are let in when the older one leaves', async (_name, old, fences, states) => {
    const at = gate();
    const first = new Visitor(at, old);
    await settled();
    const next = fences.map((fence) => new Visitor(at, fence));
    await settled();
    expect(next.map(({ state }) => state)).toEqual(states);
    first.leave!(true);
    await settled();
    expect(next.map(({ state }) => state)).toEqual(states.map((state) => (state === 'waiting' ? 'in' : state)));
  });

  test('are looked at once when they come and once when they go, however many there are', async () => {
    const at = gate();
    const inside = Array.from({ length: 2_000 }, () => new Visitor(at, read(5)));
    await settled();
    let looks = 0;
    const counted = (): Fence => ({
      mode: 'write',
      get token() {
        looks += 1;
        return 6n;
      },
    });
    const waiting = Array.from({ length: 2_000 }, () => new Visitor(at, counted()));
    await settled();
    for (const { leave } of inside) leave!(true);
    await settled();
    expect(waiting.every(({ state }) => state === 'in')).toBe(true);
    expect(looks).toBeLessThan(20 * 2_000);
  });

  test('hear of it when their time is over, and are no longer in line', async () => {
    const at = gate();
    const first = new Visitor(at, write(5));
    await settled();
    const late = new Visitor(at, write(6), { withinMs: 1 });
    await vi.waitUntil(() => late.state === 'HOLDFAST_ENGINE');
    const next = new Visitor(at, write(6));
    await settled();
    first.leave!(true);
    await settled();
    expect([late.leave, next.state]).toEqual([undefined, 'in']);
  });

  test('those inside are told once that somebody newer waits', async () => {
    const at = gate();
    const overtaken = vi.fn<() => void>();
    const first = new Visitor(at, write(5), { overtaken });
    const beside = new Visitor(at, write(5));
    await settled();
    expect([beside.state, overtaken.mock.calls.length]).toEqual(['in', 0]);
    const newer = [6, 7].map((token) => new Visitor(at, write(token)));
    await settled();
    expect(newer.map(({ state }) => state)).toEqual(['HOLDFAST_STALE_TOKEN', 'waiting']);
    expect([first.state, overtaken.mock.calls.length]).toEqual(['in', 1]);
  });
});

test('never two inside that exclude each other, nor an older one after a newer one that worked', async () => {
  for (let seed = 1; seed <= 60; seed += 1) {
    const random = seededRandom(seed);
    const at = gate();
    const visitors: { fence: Fence; visitor: Visitor; gone: boolean }[] = [];
    let [maxRead, maxWrite] = [0n, 0n];
    for (let step = 0; step < 60; step += 1) {
      const inside = visitors.filter(({ visitor, gone }) => visitor.leave && !gone);
      if (inside.length > 0 && random() < 0.5) {
        const one = inside[Math.floor(random() * inside.length)]!;
        const worked = random() < 0.5;
        one.gone = true;
        one.visitor.leave!(worked);
        if (worked && one.fence.mode === 'write' && one.fence.token > maxWrite) maxWrite = one.fence.token;
        if (worked && one.fence.mode === 'read' && one.fence.token > maxRead) maxRead = one.fence.token;
      } else {
        const token = 1 + Math.floor(step / 6 + random() * 5);
        const fence = random() < 0.5 ? read(token) : write(token);
        const visitor = new Visitor(at, fence);
        visitors.push({ fence, visitor, gone: false });
        await settled();
        if (isStale(fence, maxRead, maxWrite)) expect(visitor.state).toBe('HOLDFAST_STALE_TOKEN');
      }
      await settled();
      const now = visitors.filter(({ visitor, gone }) => visitor.leave && !gone).map(({ fence }) => fence);
      for (const a of now)
        for (const b of now) expect(a.token === b.token || (a.mode === 'read' && b.mode === 'read')).toBe(true);
    }
    // Everybody leaves, and nobody is left waiting.
    for (let left = true; left; await settled()) {
      left = false;
      for (const one of visitors) {
        if (!one.visitor.leave || one.gone) continue;
        left = one.gone = true;
        one.visitor.leave(false);
      }
    }
    expect(visitors.filter(({ visitor }) => visitor.state === 'waiting')).toEqual([]);
  }
});

describe('a place', () => {
  afterEach(() => vi.restoreAllMocks());

  test('is remembered once somebody may have worked there, and not before', async () => {
    const at = gate();
    for (let made = 0; made < 1_000; made += 1) await visit(at, `made up ${made}`, 9, false);
    expect(at.size).toBe(0);
    await visit(at, 'a', 9, true);
    await visit(at, 'a', 10, false);
    expect(at.size).toBe(1);
    await expect(visit(at, 'a', 9, true)).rejects.toThrow('stale');
  });

  test('is not remembered of one who waited in vain', async () => {
    const at = gate();
    const leave = await at.enter('r', write(1), { withinMs: 0 });
    await expect(at.enter('r', write(2), { withinMs: 1 })).rejects.toThrow('older token');
    leave(false);
    expect(at.size).toBe(0);
  });

  test('that does not fit is refused, with one warning', async () => {
    const warned = vi.spyOn(process, 'emitWarning').mockImplementation(() => {});
    const at = gate({ most: 2 });
    for (const resource of ['a', 'b']) await visit(at, resource, 5, true);
    for (const resource of ['c', 'd']) await expect(visit(at, resource, 5, true)).rejects.toThrow('mostResources');
    await expect(visit(at, 'a', 4, true)).rejects.toThrow('stale');
    await visit(at, 'a', 6, true);
    expect(warned).toHaveBeenCalledTimes(1);
  });

  test('is forgotten after a time, if that is asked for', async () => {
    const now = vi.spyOn(performance, 'now').mockReturnValue(0);
    const at = gate({ most: 2, forgetAfterMs: 1_000 });
    for (const resource of ['a', 'b']) await visit(at, resource, 5, true);
    now.mockReturnValue(600);
    await visit(at, 'a', 5, true);
    now.mockReturnValue(1_000);
    await visit(at, 'c', 5, true);
    await expect(visit(at, 'a', 4, true)).rejects.toThrow('stale');
    // Who was refused has asked for it, too.
    now.mockReturnValue(2_000);
    await visit(at, 'd', 1, true);
    await visit(at, 'a', 1, true);
    expect(at.size).toBe(2);
  });

  test('makes room for others where a store remembers it, unless somebody is there', async () => {
    const at = gate({ most: 2, stored: true });
    const leave = await at.enter('busy', write(5), { withinMs: 0 });
    for (const resource of ['a', 'b', 'c']) await visit(at, resource, 5, true);
    expect(at.size).toBe(2);
    await expect(visit(at, 'busy', 4, true)).rejects.toThrow('stale');
    leave(true);
  });
});
