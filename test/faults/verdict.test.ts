import { describe, expect, test } from 'vitest';
import type { HistoryEvent, RunEvent } from './history.js';
import { paperHistory } from './paper-lock.js';
import { report } from './report.js';
import { Story } from './story.js';
import { timeline } from './timeline.js';
import { judge, type Verdict } from './verdict.js';

const right = paperHistory({ seed: 3, faults: ['stall', 'kill', 'hang'] });
const naive = paperHistory({ seed: 3, faults: ['stall'], naive: true });
const calm = paperHistory({ seed: 3, faults: [] });

/** Judged when it is asked for, and once: a long history takes a tenth of a second. */
function judged(history: readonly HistoryEvent[], control?: readonly HistoryEvent[]): () => Verdict {
  let verdict: Verdict | undefined;
  return () => (verdict ??= judge(history, control));
}

const rightBesideNaive = judged(right, naive);
const naiveAlone = judged(naive);

function withInfo(history: readonly HistoryEvent[], info: Partial<RunEvent>): readonly HistoryEvent[] {
  return history.map((event) => (event.kind === 'run' ? Object.assign({}, event, info) : event));
}

describe('verdict', () => {
  test('a right lock passes beside a naive one that breaks', () => {
    const { outcome, control, figures, cases, voidBecause } = rightBesideNaive();
    expect(voidBecause).toEqual([]);
    expect(outcome).toBe('passed');
    expect(control).toMatchObject({ lock: 'naive', violated: true });
    expect(figures.granted).toBeGreaterThan(100);
    expect(figures.faultsOnHolder).toBeGreaterThan(0);
    expect(figures.register.refused).toBeGreaterThan(0);
    for (const [property, count] of Object.entries(cases)) expect(count, property).toBeGreaterThan(0);
  });

  test('a control that survives makes the run void, and so do faults that never came', () => {
    expect(judge(right, calm)).toMatchObject({ outcome: 'void', control: { violated: false } });
    expect(judge(calm, naive)).toMatchObject({ outcome: 'void', voidBecause: [expect.stringContaining('No fault')] });
  });

  test('what the engine does not promise is counted and does not fail the run', () => {
    const verdict = judge(withInfo(naive, { judged: ['tokens', 'clean'] }));
    expect(verdict).toMatchObject({ outcome: 'passed', failures: [] });
    expect(verdict.counted.length).toBeGreaterThan(0);
  });

  test('a broken promise fails even a run that is void', () => {
    const story = new Story();
    story.leftover('secret');
    expect(judge(story.events)).toMatchObject({ outcome: 'failed', failures: [{ property: 'secrets' }] });
  });

  test('a history that does not say what was run is refused', () => {
    expect(() => judge([])).toThrow('`run` event is missing');
  });

  test('the order of the files does not matter', () => {
    expect(judge(right.toReversed()).figures).toEqual(rightBesideNaive().figures);
  });
});

describe('report', () => {
  test('says verdict, figures, versions, seed and how to see it again', () => {
    const text = report(rightBesideNaive(), {
      timeline: 'timeline.svg',
      replay: 'npm run faults -- replay history.jsonl',
    });
    expect(text).toContain('# paper, holdfast: passed');
    expect(text).toContain('![Timeline](timeline.svg)');
    expect(text).toContain('| seed | 3 |');
    expect(text).toContain('| paper | 1 |');
    expect(text).toContain('broke, as it must');
    expect(text).toContain('npm run faults -- replay history.jsonl');
    expect(text).not.toContain('undefined');
  });

  test('shows the first violation event by event, and does not repeat hundreds', () => {
    const text = report(naiveAlone());
    expect(text).toContain('## First violation');
    expect(text).toMatch(/s {2}w\d\.\d \S+ returns ok, token \d+/);
    expect(text).toMatch(/stall on w\d\.1: begin/);
    expect(text.split('\n').length).toBeLessThan(120);
  });

  test('says why a run is void', () => {
    expect(report(judge(calm))).toContain('- No fault began while a lease was held.');
  });
});

describe('timeline', () => {
  test('draws workers, holds, faults and the first violation, as well-formed XML', () => {
    const svg = timeline(naiveAlone());
    expect(unclosed(svg)).toEqual([]);
    for (const row of ['w1', 'w4', 'server']) expect(svg).toContain(`>${row}</text>`);
    expect(svg).toContain('<title>stall on ');
    expect(svg).toContain('belief ▾');
    expect(svg).not.toMatch(/NaN|Infinity|undefined/);
  });

  test('text from the history can’t break it', () => {
    const svg = timeline(judge(withInfo(naive, { engine: '<"&\u0000>' })));
    expect(svg).toContain('&lt;&quot;&amp; &gt;');
    expect(unclosed(svg)).toEqual([]);
  });

  test('a run in which nothing happened has a picture, too', () => {
    const svg = timeline(judge(new Story().events));
    expect(unclosed(svg)).toEqual([]);
    expect(svg).not.toMatch(/NaN|Infinity/);
  });
});

/** Elements that were opened and not closed, or the other way round. */
function unclosed(svg: string): readonly string[] {
  const open: string[] = [];
  for (const [, end, name, empty] of svg.matchAll(/<(\/?)([a-z]+)(?:\s+[\w:-]+="[^"<]*")*\s*(\/?)>/g)) {
    if (end === '/') {
      if (open.pop() !== name) return [`</${name}>`];
    } else if (empty !== '/') open.push(name!);
  }
  const text = svg.replaceAll(/<\/?[a-z]+(?:\s+[\w:-]+="[^"<]*")*\s*\/?>/g, '');
  return text.includes('<') ? [...open, '<'] : open;
}
