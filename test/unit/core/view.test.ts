import * as fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import type { EngineClaim } from '../../../src/core/engine.js';
import { type ClaimView, emptyLineView, type LineView, lineView } from '../../../src/core/view.js';
import { anyText } from '../any-text.js';

const claim: EngineClaim = {
  id: 'ali-as-7',
  state: 'held',
  weight: 1,
  token: 5n,
  since: 1_700_000_000_000,
  note: '{"label":"billing@host:1","task":3,"value":"http://leader"}',
};

const viewOf = (claims: readonly EngineClaim[], own?: { local: number; token: bigint | undefined }): LineView =>
  lineView({ kind: 'lock', name: 'order:42', capacity: 9, claims }, () => own);

const first = (view: LineView): ClaimView => view.claims[0]!;

describe('a line as people see it', () => {
  test('has labels, tokens in the user’s scale, and sessions by the alias that their claims carry', () => {
    expect(first(viewOf([claim]))).toEqual({
      id: 'ali-as-7',
      state: 'held',
      weight: 1,
      token: 5n * 1_024n,
      label: 'billing@host:1',
      session: 'ali-as',
      since: 1_700_000_000_000,
      task: 3,
      value: 'http://leader',
    });
  });

  test('a claim of our own has the token of the turn that has it, and says how many of us wait behind it', () => {
    expect(first(viewOf([claim], { local: 2, token: 5_123n }))).toMatchObject({ token: 5_123n, local: 2 });
    expect(first(viewOf([claim], { local: 0, token: undefined }))).toMatchObject({ token: 5_120n, local: 0 });
    expect(first(viewOf([claim]))).not.toHaveProperty('local');
  });

  test('a waiter may have no token yet', () => {
    const waiting = { ...claim, state: 'waiting', token: undefined } as const;
    expect(first(viewOf([waiting])).token).toBeUndefined();
    expect(JSON.parse(JSON.stringify(viewOf([waiting])))).not.toHaveProperty('claims.0.token');
  });

  test('is JSON with tokens as strings, because a double can’t hold them', () => {
    const big = 2n ** 53n + 1n;
    const json = JSON.parse(JSON.stringify(viewOf([{ ...claim, token: big }]))) as LineView;
    expect(json).toMatchObject({ name: 'order:42', kind: 'lock', capacity: 9 });
    expect(json.claims[0]!.token).toBe(String(big * 1_024n));
    expect(Object.keys(viewOf([claim]))).not.toContain('toJSON');
  });

  test('may be empty', () => {
    expect(JSON.parse(JSON.stringify(emptyLineView('n', 'semaphore', 4)))).toEqual({
      name: 'n',
      kind: 'semaphore',
      capacity: 4,
      claims: [],
    });
  });
});

describe('a note that we did not write', () => {
  test.each([
    [undefined],
    [''],
    ['not json'],
    ['null'],
    ['[]'],
    ['"text"'],
    ['42'],
    ['{}'],
    ['{"label":null}'],
    ['{"label":{"a":1}}'],
  ])('%j is shown as unknown', (note) => {
    const view = first(viewOf([{ ...claim, note }]));
    expect(view).toMatchObject({ id: claim.id, label: 'unknown' });
    expect(view).not.toHaveProperty('task');
    expect(view).not.toHaveProperty('value');
  });

  test('can’t put anything but a number and a string where these are promised', () => {
    const view = first(viewOf([{ ...claim, note: '{"label":"l","task":"3","value":{"a":1}}' }]));
    expect(view.label).toBe('l');
    expect(view).not.toHaveProperty('task');
    expect(view).not.toHaveProperty('value');
  });

  test('whatever it and the id are, there is a view', () => {
    const note = fc.oneof(anyText(), fc.json());
    fc.assert(
      fc.property(note, fc.string(), (note, id) => {
        const view = first(viewOf([{ ...claim, id, note }]));
        expect(view.label).toBeTypeOf('string');
        expect(id.startsWith(view.session)).toBe(true);
        expect(JSON.stringify(viewOf([{ ...claim, id, note }]))).toBeTypeOf('string');
      }),
      { numRuns: 100 },
    );
  });
});
