import * as fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { expectSame } from '../unit/same.js';
import { linearize } from './linearizable.js';
import { registerModel, type RegisterOp, type RegisterState } from './register-model.js';

type Outcome = Pick<RegisterOp, 'what' | 'reader' | 'token' | 'value' | 'out'>;

function op(call: number, ret: number, outcome: Partial<Outcome>): RegisterOp {
  const known = { what: 'read', reader: false, token: 1n, value: 0, out: 'ok', ...outcome } as const;
  return { ...known, call, ret: known.out === 'unknown' ? Number.POSITIVE_INFINITY : ret };
}

function isLinearizable(ops: readonly RegisterOp[]): boolean | undefined {
  return linearize(registerModel, ops).linearizable;
}

/** Every order, one after the other: slow and obvious. */
function bruteForce(ops: readonly RegisterOp[], state: RegisterState = registerModel.initial): boolean {
  if (ops.every(({ out }) => out === 'unknown')) return true;
  const firstReturn = Math.min(...ops.map(({ ret }) => ret));
  return ops
    .filter(({ call }) => call <= firstReturn)
    .some((next) => {
      const after = registerModel.step(state, next);
      return (
        after !== undefined &&
        bruteForce(
          ops.filter((other) => other !== next),
          after,
        )
      );
    });
}

describe('linearizable', () => {
  test('a read may see a write that has not returned, and then no later read may miss it', () => {
    const write = op(0, 10, { what: 'write', value: 1 });
    expect(isLinearizable([write, op(1, 2, { value: 0 }), op(3, 4, { value: 1 })])).toBe(true);
    expect(isLinearizable([write, op(1, 2, { value: 1 }), op(3, 4, { value: 0 })])).toBe(false);
  });

  test('an unknown write may happen at any time after its call, or never', () => {
    const unknown = op(2, 0, { what: 'write', value: 1, out: 'unknown' });
    expect(isLinearizable([unknown, op(3, 4, { value: 0 }), op(50, 51, { value: 1 })])).toBe(true);
    expect(isLinearizable([unknown, op(3, 4, { value: 0 }), op(50, 51, { value: 0 })])).toBe(true);
    expect(isLinearizable([unknown, op(0, 1, { value: 1 })])).toBe(false);
    expect(isLinearizable([unknown, op(3, 4, { value: 1 }), op(5, 6, { value: 0 })])).toBe(false);
  });

  test('what broke it is told with what came before', () => {
    const read = op(0, 1, { token: 2n });
    const stale = op(2, 3, { what: 'write', token: 1n, value: 9 });
    const answer = linearize(registerModel, [read, stale]);
    expect(answer).toMatchObject({ linearizable: false, at: stale, after: read, state: { maxWrite: 2n } });
  });

  test('with too many worlds it is undecided, not wrong', () => {
    const writes = Array.from({ length: 8 }, (_, value) => op(value, 100, { what: 'write', value, token: undefined }));
    expect(linearize(registerModel, writes, 50).linearizable).toBeUndefined();
  });
});

describe('the fenced register', () => {
  test('a writer is refused after a newer writer or a newer reader has come, and only then', () => {
    for (const reader of [true, false]) {
      const newer = op(0, 1, { token: 5n, reader });
      const late = { what: 'write', token: 4n, value: 1 } as const;
      expect(isLinearizable([newer, op(2, 3, late)])).toBe(false);
      expect(isLinearizable([newer, op(2, 3, { ...late, out: 'stale' })])).toBe(true);
      expect(isLinearizable([newer, op(2, 3, { ...late, token: 6n, out: 'stale' })])).toBe(false);
    }
  });

  test('readers share: an older one may come after a newer one, but after no newer writer', () => {
    const older = op(2, 3, { token: 4n, reader: true });
    expect(isLinearizable([op(0, 1, { token: 5n, reader: true }), older])).toBe(true);
    expect(isLinearizable([op(0, 1, { token: 5n }), older])).toBe(false);
    expect(isLinearizable([op(0, 1, { token: 4n }), older])).toBe(false);
  });
});

describe('against brute force', () => {
  const operation = fc
    .record({
      call: fc.nat(12),
      lasts: fc.nat(6),
      what: fc.constantFrom('read', 'write'),
      reader: fc.boolean(),
      token: fc.option(fc.bigInt(1n, 3n), { nil: undefined, freq: 5 }),
      value: fc.nat(2),
      out: fc.constantFrom('ok', 'ok', 'stale', 'unknown'),
    } as const)
    .map(({ call, lasts, reader, ...outcome }) =>
      op(call, call + lasts, { ...outcome, reader: reader && outcome.what === 'read' }),
    );

  test('both say the same of any small history', () => {
    let linearizable = 0;
    fc.assert(
      fc.property(fc.array(operation, { maxLength: 6 }), (ops) => {
        const expected = bruteForce(ops);
        if (expected && ops.length > 2) linearizable += 1;
        expectSame(isLinearizable(ops), expected);
      }),
      { numRuns: 3_000 },
    );
    expect(linearizable).toBeGreaterThan(100);
  });

  /** A true register, asked at an instant between call and return: its history is right by construction. */
  const trueHistory = fc.array(
    fc.record({
      at: fc.nat(30),
      before: fc.nat(8),
      after: fc.nat(8),
      what: fc.constantFrom('read', 'write'),
      reader: fc.boolean(),
      token: fc.bigInt(1n, 6n),
      unknown: fc.nat(9).map((dice) => dice === 0),
    } as const),
    { maxLength: 30 },
  );

  test('no history of a true register is refused', () => {
    fc.assert(
      fc.property(trueHistory, (plan) => {
        let state = registerModel.initial;
        const ops = plan
          .toSorted((a, b) => a.at - b.at)
          .map(({ at, before, after, what, token, unknown, ...asked }, number) => {
            const reader = asked.reader && what === 'read';
            const value = what === 'read' ? state.value : number + 1;
            const accepted = registerModel.step(state, op(0, 0, { what, reader, token, value }));
            state = accepted ?? state;
            const out = unknown ? 'unknown' : accepted ? 'ok' : 'stale';
            return op(at - before, at + after, { what, reader, token, value, out });
          });
        expect(isLinearizable(ops)).toBe(true);
      }),
      { numRuns: 500 },
    );
  });
});

describe('speed', () => {
  test('a hundred thousand operations with unknown ones and one mistake take seconds', () => {
    const ops: RegisterOp[] = [];
    for (let turn = 0; turn < 50_000; turn += 1) {
      const token = BigInt(turn + 1);
      const at = turn * 10;
      ops.push({ what: 'read', reader: false, token, value: turn, out: 'ok', call: at, ret: at + 14 });
      const [out, ret] =
        turn % 5_000 === 4_999 ? (['unknown', Number.POSITIVE_INFINITY] as const) : (['ok', at + 16] as const);
      ops.push({ what: 'write', reader: false, token, value: turn + 1, out, call: at + 5, ret });
    }
    // Our own time: a busy machine gives us little of it, which says nothing about the search.
    const start = process.cpuUsage();
    expect(isLinearizable(ops.slice(0, -1_000))).toBe(true);
    expect(process.cpuUsage(start).user / 1_000).toBeLessThan(10_000);
    const mistake = op(2_000, 2_014, { token: 201n, value: 3 });
    expect(isLinearizable(ops.with(400, mistake))).toBe(false);
  }, 180_000);
});
