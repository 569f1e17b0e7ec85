import * as fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { checkBelief } from './checkers/belief.js';
import { countLostUpdates } from './checkers/counter.js';
import { checkFifo } from './checkers/fifo.js';
import { checkClean, checkSecrets } from './checkers/leftovers.js';
import { checkKept } from './checkers/kept.js';
import { checkLiveness } from './checkers/liveness.js';
import { checkRegister } from './checkers/register.js';
import { checkTokens } from './checkers/tokens.js';
import { checkTruth } from './checkers/truth.js';
import { hitsOf, whyVoid } from './checkers/validity.js';
import { checkWakeups } from './checkers/wakeups.js';
import type { Finding } from './finding.js';
import { figuresOf } from './figures.js';
import { FINAL, NOBODY, STARVED } from './history.js';
import { paperHistory } from './paper-lock.js';
import { report } from './report.js';
import type { Run } from './run.js';
import { type Grant, Story } from './story.js';
import { judge } from './verdict.js';

/** Two updates that were acknowledged, one without an answer, and what is there in the end. */
function ending(value: number): Story {
  const story = new Story();
  update(story, 'w1.1', 1, 0, 10);
  update(story, 'w2.1', 2, 1, 20);
  const killed = story.grant({ worker: 'w3.1', call: 40, grant: 41, token: 3 });
  story.does(killed, 'write', [42, 0], { value: 3, token: 3 });
  const read = story.call(90, { worker: FINAL, what: 'read', name: 'mutex-1', mode: 'mutex' });
  story.return(91, read, 'ok', { value });
  return story;
}

/** What was found, as far as a test cares. */
function broken(check: (run: Run) => Finding, story: Story): readonly string[] {
  return check(story.run).violations.map(({ what }) => what);
}

/** A lease that was asked at both times, and said yes. */
function believe(story: Story, grant: Omit<Grant, 'call' | 'grant'>, from: number, to: number): string {
  const lease = story.grant({ ...grant, call: from - 2, grant: from - 1 });
  story.held(lease, true, from, to);
  return lease;
}

const permits = (weight: number) => ({ mode: 'semaphore', weight, capacity: 3 }) as const;

/** Reads, and writes one more. */
function update(story: Story, worker: string, token: number, seen: number, at: number, writesAt = at + 2): void {
  const lease = story.grant({ worker, call: at - 2, grant: at - 1, token });
  story.does(lease, 'read', [at, at + 1], { out: 'ok', value: seen, token });
  story.does(lease, 'write', [writesAt, writesAt + 1], { out: 'ok', value: seen + 1, token });
}

const waiting = (story: Story, worker: string, at: number): string =>
  story.call(at, { worker, what: 'acquire', name: 'mutex-1', mode: 'mutex' });

/** One who holds, and two who were seen waiting. */
function three(): { story: Story; holder: string; front: string; behind: string } {
  const story = new Story();
  const holder = story.grant({ worker: 'w1.1', call: 0, grant: 1, token: 1 });
  const [front, behind] = [waiting(story, 'w2.1', 2), waiting(story, 'w3.1', 3)];
  story.line(5_000, [holder], [front, behind]);
  return { story, holder, front, behind };
}

/** What is found if a free lock is seen with a waiter for so long. */
function idle(lasts: number, disturb?: (story: Story) => void): readonly string[] {
  const story = new Story();
  const waiter = story.call(0, { worker: 'w2.1', what: 'acquire', name: 'mutex-1', mode: 'mutex' });
  for (let at = 10_000; at <= 10_000 + lasts; at += 100) story.line(at, [], [waiter]);
  disturb?.(story);
  return broken(checkWakeups, story);
}

/** All is healed at 10 s, and the first of two workers is served. */
function healed(over = 20_000): Story {
  const story = new Story(['w1.1', 'w2.1']);
  story.phase('healed', 10_000);
  story.phase('over', over);
  story.grant({ worker: 'w1.1', call: 10_100, grant: 10_200 });
  return story;
}

/** A lease, and a fault for two ttl right after its first check. */
function lease(target = 'w1.1', nemesis = 'stall'): { story: Story; id: string } {
  const story = new Story();
  const id = story.grant({ worker: 'w1.1', call: 9_999, grant: 10_000, token: 1 });
  story.held(id, true, 10_000);
  story.fault(target, 10_010, 11_010, nemesis);
  return { story, id };
}

/** One after the other, every 10 ms. */
function grants(count: number): Story {
  const story = new Story();
  for (let at = 0; at < count; at += 1) {
    const lease = story.grant({ worker: 'w1.1', call: at * 10, grant: at * 10 + 1, token: at + 1 });
    story.does(lease, 'release', [at * 10 + 5, at * 10 + 6], { out: 'ok' });
  }
  return story;
}

describe('belief', () => {
  test('one after the other is fine, even at the same microsecond', () => {
    const story = new Story();
    believe(story, { worker: 'w1.1' }, 10, 20);
    believe(story, { worker: 'w2.1' }, 20, 30);
    expect(broken(checkBelief, story)).toEqual([]);
  });

  test('two at one instant are found, once, with both grants', () => {
    const story = new Story();
    believe(story, { worker: 'w1.1', token: 1 }, 10, 20);
    believe(story, { worker: 'w2.1', token: 2 }, 19, 30);
    const { violations } = checkBelief(story.run);
    expect(violations).toHaveLength(1);
    expect(violations[0]).toMatchObject({ at: 19_000, name: 'mutex-1', property: 'belief' });
    expect(violations[0]!.events.filter(({ kind }) => kind === 'return')).toHaveLength(2);
  });

  test('a question that was answered with no ends a belief before it', () => {
    const story = new Story();
    const lease = believe(story, { worker: 'w1.1' }, 10, 20);
    story.held(lease, false, 40);
    believe(story, { worker: 'w2.1' }, 30, 50);
    expect(broken(checkBelief, story)).toEqual([]);
  });

  test('a single answer spans no time that anybody could prove', () => {
    const story = new Story();
    const lease = story.grant({ worker: 'w1.1', call: 1, grant: 2 });
    story.held(lease, true, 15);
    believe(story, { worker: 'w2.1' }, 10, 20);
    expect(broken(checkBelief, story)).toEqual([]);
  });

  test('readers share, a writer beside them does not', () => {
    const story = new Story();
    believe(story, { worker: 'w1.1', mode: 'read' }, 10, 40);
    believe(story, { worker: 'w2.1', mode: 'read' }, 20, 40);
    expect(broken(checkBelief, story)).toEqual([]);
    believe(story, { worker: 'w3.1', mode: 'write' }, 30, 35);
    expect(broken(checkBelief, story)).toHaveLength(1);
  });

  test('a semaphore is full when its weights are', () => {
    const story = new Story();
    believe(story, { worker: 'w1.1', ...permits(1) }, 10, 40);
    believe(story, { worker: 'w2.1', ...permits(2) }, 20, 40);
    expect(broken(checkBelief, story)).toEqual([]);
    believe(story, { worker: 'w3.1', ...permits(1) }, 30, 35);
    expect(broken(checkBelief, story)).toHaveLength(1);
  });

  test('a re-entrant lock is held once, however deep', () => {
    const story = new Story();
    believe(story, { worker: 'w1.1', mode: 'reentrant', token: 1 }, 10, 40);
    believe(story, { worker: 'w1.1', mode: 'reentrant', token: 1 }, 20, 30);
    expect(broken(checkBelief, story)).toEqual([]);
    believe(story, { worker: 'w2.1', mode: 'reentrant', token: 2 }, 35, 50);
    expect(broken(checkBelief, story)).toHaveLength(1);
  });
});

describe('tokens', () => {
  test('grants at the same time may have tokens in any order, but not the same', () => {
    const story = new Story();
    story.grant({ worker: 'w1.1', call: 0, grant: 10, token: 8 });
    story.grant({ worker: 'w2.1', call: 9, grant: 20, token: 7 });
    expect(broken(checkTokens, story)).toEqual([]);
    story.grant({ worker: 'w3.1', call: 9, grant: 20, token: 8 });
    expect(broken(checkTokens, story)).toEqual([expect.stringContaining('the same token')]);
  });

  test('a smaller token for a later grant is found', () => {
    const story = new Story();
    story.grant({ worker: 'w1.1', call: 0, grant: 10, token: 9 });
    story.grant({ worker: 'w2.1', call: 11, grant: 20, token: 8 });
    expect(broken(checkTokens, story)).toEqual([expect.stringContaining('got 8 for mutex-1, a smaller token than 9')]);
  });

  test('a server that was cut off may be behind its successor, but not behind itself', () => {
    const story = new Story();
    story.grant({ worker: 'w1.1', call: 0, grant: 10, token: 5 });
    story.isolation(['w1.1', 'w2.1'], 50, 500);
    story.grant({ worker: 'w3.1', call: 100, grant: 110, token: 100 });
    story.grant({ worker: 'w1.1', call: 120, grant: 130, token: 7 });
    story.grant({ worker: 'w3.1', call: 140, grant: 150, token: 101 });
    expect(broken(checkTokens, story)).toEqual([]);
    story.grant({ worker: 'w2.1', call: 160, grant: 170, token: 6 });
    expect(broken(checkTokens, story)).toEqual([expect.stringContaining('got 6 for mutex-1, a smaller token than 7')]);
  });

  test('the successor of a server that was cut off is ahead of all that it grants, and nobody gets a token again', () => {
    const story = new Story();
    story.isolation(['w1.1'], 50, 500);
    story.grant({ worker: 'w1.1', call: 100, grant: 110, token: 9 });
    story.grant({ worker: 'w3.1', call: 120, grant: 130, token: 8 });
    expect(broken(checkTokens, story)).toEqual([expect.stringContaining('got 8 for mutex-1, a smaller token than 9')]);
    story.grant({ worker: 'w3.1', call: 125, grant: 135, token: 9 });
    expect(broken(checkTokens, story)).toContainEqual(expect.stringContaining('the same token'));
    story.grant({ worker: 'w1.1', call: 600, grant: 610, token: 7 });
    expect(broken(checkTokens, story)).toContainEqual(expect.stringContaining('got 7 for mutex-1'));
  });

  test('tokens are compared as integers of 64 bits', () => {
    const story = new Story();
    const [first, second] = [2n ** 60n + 1n, 2n ** 60n];
    for (const [at, token] of [first, second].entries()) {
      const id = story.call(at * 10, { worker: 'w1.1', what: 'acquire', name: 'mutex-1', mode: 'mutex' });
      story.return(at * 10 + 5, id, 'ok', { token: `${token}` });
    }
    expect(broken(checkTokens, story)).toHaveLength(1);
  });

  test('readers among themselves are in any order; a writer is newer than the readers before it', () => {
    const story = new Story();
    story.grant({ worker: 'w1.1', call: 0, grant: 10, token: 9, mode: 'read' });
    story.grant({ worker: 'w2.1', call: 11, grant: 20, token: 8, mode: 'read' });
    expect(broken(checkTokens, story)).toEqual([]);
    story.grant({ worker: 'w3.1', call: 21, grant: 30, token: 7, mode: 'write' });
    expect(broken(checkTokens, story)).toHaveLength(1);
  });

  test('what is inside a re-entrant lock has the token of the outside', () => {
    const story = new Story();
    story.grant({ worker: 'w1.1', call: 0, grant: 10, token: 5, mode: 'reentrant' });
    story.grant({ worker: 'w1.1', call: 11, grant: 12, token: 5, mode: 'reentrant' });
    expect(broken(checkTokens, story)).toEqual([]);
    story.grant({ worker: 'w2.1', call: 20, grant: 30, token: 5, mode: 'reentrant' });
    expect(broken(checkTokens, story)).toHaveLength(1);
  });

  test('names have tokens of their own', () => {
    const story = new Story();
    story.grant({ worker: 'w1.1', call: 0, grant: 10, token: 9 });
    story.grant({ worker: 'w1.1', call: 11, grant: 20, token: 1, name: 'mutex-2' });
    expect(broken(checkTokens, story)).toEqual([]);
  });
});

describe('register', () => {
  test('one update after the other, a stale one refused and one that never returned', () => {
    const story = new Story();
    update(story, 'w1.1', 1, 0, 10);
    update(story, 'w2.1', 2, 1, 20);
    const late = story.grant({ worker: 'w3.1', call: 5, grant: 6, token: 1 });
    story.does(late, 'write', [30, 31], { out: 'stale', value: 9, token: 1 });
    const killed = story.grant({ worker: 'w3.1', call: 40, grant: 41, token: 3 });
    story.does(killed, 'write', [42, 0], { value: 3, token: 3 });
    update(story, 'w1.1', 4, 3, 50);
    expect(checkRegister(story.run)).toEqual({ cases: 8, violations: [], undecided: [] });
  });

  test('a stale write that was accepted is found', () => {
    const story = new Story();
    update(story, 'w2.1', 2, 0, 20);
    update(story, 'w1.1', 1, 1, 30);
    expect(broken(checkRegister, story)[0]).toContain('No order explains');
  });

  test('an update that was lost is found, even if nothing else is wrong', () => {
    const story = new Story();
    for (const [worker, at] of [
      ['w1.1', 10],
      ['w2.1', 11],
    ] as const) {
      const lease = story.grant({ worker, call: at - 2, grant: at - 1 });
      story.does(lease, 'read', [at, at + 1], { out: 'ok', value: 0 });
      story.does(lease, 'write', [at + 5, at + 6], { out: 'ok', value: 1 });
    }
    expect(broken(checkRegister, story)).toEqual([expect.stringContaining('An update was lost')]);
  });

  test('a value from nowhere is found', () => {
    const story = new Story();
    update(story, 'w1.1', 1, 0, 10);
    update(story, 'w2.1', 2, 7, 20);
    expect(broken(checkRegister, story)).toEqual([expect.stringContaining('gave 7: the register of mutex-1 held 1')]);
  });

  test('what is there in the end must be what was acknowledged, give or take what has no answer', () => {
    for (const value of [2, 3]) expect(broken(checkRegister, ending(value))).toEqual([]);
    for (const value of [1, 4])
      expect(broken(checkRegister, ending(value))).toContainEqual(expect.stringContaining('is there in the end'));
  });
});

describe('fifo', () => {
  test('who stands in front is first', () => {
    const { story, front, behind } = three();
    story.return(5_010, front, 'ok', { token: '2' });
    story.line(5_020, [front], [behind]);
    story.return(5_030, behind, 'ok', { token: '3' });
    expect(checkFifo(story.run)).toMatchObject({ cases: 1, violations: [] });
  });

  test('who is granted first though another stood in front is found', () => {
    const later = three();
    later.story.return(5_010, later.behind, 'ok', { token: '3' });
    later.story.return(5_030, later.front, 'ok', { token: '2' });
    expect(broken(checkFifo, later.story)).toEqual([expect.stringContaining('it returned later')]);
    const newer = three();
    newer.story.return(5_010, newer.behind, 'ok', { token: '2' });
    newer.story.return(5_030, newer.front, 'ok', { token: '3' });
    expect(broken(checkFifo, newer.story)).toEqual([expect.stringContaining('its token is larger')]);
    const waits = three();
    waits.story.return(5_010, waits.behind, 'ok', { token: '3' });
    waits.story.line(5_020, [waits.behind], [waits.front]);
    expect(broken(checkFifo, waits.story)).toEqual([expect.stringContaining('seen waiting after that')]);
  });

  test('who came to stand behind one who waits has come again', () => {
    const { story, holder, front, behind } = three();
    story.line(5_005, [holder], [behind, front]);
    story.return(5_010, behind, 'ok', { token: '3' });
    story.return(5_030, front, 'ok', { token: '4' });
    expect(broken(checkFifo, story)).toEqual([]);
  });

  test('who gave up, or lost its session and came again, was not overtaken', () => {
    const gaveUp = three();
    gaveUp.story.return(5_005, gaveUp.front, 'aborted');
    gaveUp.story.return(5_010, gaveUp.behind, 'ok', { token: '3' });
    expect(broken(checkFifo, gaveUp.story)).toEqual([]);
    const cameAgain = three();
    cameAgain.story.line(5_005, [cameAgain.holder], [cameAgain.behind]);
    cameAgain.story.return(5_010, cameAgain.behind, 'ok', { token: '3' });
    cameAgain.story.line(5_020, [cameAgain.behind], [cameAgain.front]);
    cameAgain.story.return(5_030, cameAgain.front, 'ok', { token: '4' });
    expect(broken(checkFifo, cameAgain.story)).toEqual([]);
  });

  test('whose worker or server was under a fault may have lost its place', () => {
    for (const target of ['w2.1', 'server']) {
      const { story, front, behind } = three();
      story.fault(target, 4_900, 4_950);
      story.return(5_010, behind, 'ok', { token: '2' });
      story.return(5_030, front, 'ok', { token: '3' });
      expect(broken(checkFifo, story)).toEqual([]);
    }
    const { story, front, behind } = three();
    story.fault('w1.1', 4_900, 4_950);
    story.return(5_010, behind, 'ok', { token: '2' });
    story.return(5_030, front, 'ok', { token: '3' });
    expect(broken(checkFifo, story)).toHaveLength(1);
  });
});

describe('wakeups', () => {
  test('nobody waits for a free lock for longer than a ttl and a poll', () => {
    expect(idle(1_400)).toEqual([]);
    expect(idle(1_700)).toEqual([expect.stringContaining('though nobody held it')]);
  });

  test('faults, and the time that they cost, do not count', () => {
    expect(idle(2_500, (story) => story.fault('w1.1', 10_500, 10_600))).toEqual([]);
    expect(idle(3_000, (story) => story.fault('w1.1', 10_500, 10_600))).toHaveLength(1);
    expect(idle(4_100, (story) => story.fault('server', 10_500, 10_600))).toEqual([]);
    expect(idle(4_500, (story) => story.fault('server', 10_500, 10_600))).toHaveLength(1);
  });

  test('a stall ends with the life of who stalled', () => {
    const found = idle(1_700, (story) => {
      story.events.push({ kind: 'fault', at: 9_000_000, id: 'f', nemesis: 'stall', what: 'begin', target: 'w1.1' });
      story.ended('w1.1', 9_400);
    });
    expect(found).toHaveLength(1);
  });

  test('somebody else is served meanwhile: the lock was not free all the time', () => {
    expect(idle(2_400, (story) => story.grant({ worker: 'w1.1', call: 11_100, grant: 11_150 }))).toEqual([]);
  });

  test('what is left of an acquire that has returned waits for nothing', () => {
    expect(idle(4_000, (story) => story.return(10_050, 'w2.1-1', 'aborted'))).toEqual([]);
  });
});

describe('liveness', () => {
  test('everybody who lives is served within ten ttl', () => {
    const story = healed();
    story.grant({ worker: 'w2.1', call: 9_000, grant: 14_900 });
    expect(checkLiveness(story.run)).toMatchObject({ violations: [], undecided: [] });
    const late = healed();
    late.grant({ worker: 'w2.1', call: 9_000, grant: 15_100 });
    expect(broken(checkLiveness, late)).toEqual([expect.stringContaining('w2.1 was granted nothing')]);
  });

  test('who was killed before needs nothing', () => {
    const story = healed();
    story.call(9_000, { worker: 'w2.1', what: 'acquire', name: 'mutex-1', mode: 'mutex' });
    story.ended('w2.1', 9_500);
    expect(checkLiveness(story.run)).toMatchObject({ violations: [], undecided: [] });
  });

  test('a promise that never settles is found', () => {
    const story = healed();
    story.grant({ worker: 'w2.1', call: 10_100, grant: 10_300 });
    story.call(12_000, { worker: 'w2.1', what: 'acquire', name: 'mutex-1', mode: 'mutex' });
    story.ended('w2.1', 19_000);
    expect(broken(checkLiveness, story)).toEqual([expect.stringContaining('never returned')]);
  });

  test('a run that ended too early, or not at all, is undecided', () => {
    expect(checkLiveness(healed(12_000).run)).toMatchObject({ violations: [], undecided: [expect.any(String)] });
    expect(checkLiveness(new Story().run).undecided).toHaveLength(1);
  });
});

describe('truth', () => {
  test('a loss that its signal or its release tells is fine', () => {
    for (const out of ['ok', 'lost'] as const) {
      const { story, id } = lease();
      story.held(id, false, 11_011);
      if (out === 'ok') story.lost(id, 11_012);
      story.does(id, 'release', [11_013, 11_014], { out });
      expect(broken(checkTruth, story)).toEqual([]);
    }
  });

  test('a loss that nobody tells is found', () => {
    const { story, id } = lease();
    story.held(id, false, 11_011);
    story.does(id, 'release', [11_013, 11_014], { out: 'ok' });
    expect(broken(checkTruth, story)).toEqual([expect.stringContaining('its signal did not abort')]);
  });

  test('who died before it could be told is not wronged', () => {
    const { story, id } = lease();
    story.held(id, false, 11_011);
    story.ended('w1.1', 11_020);
    story.phase('over', 20_000);
    expect(broken(checkTruth, story)).toEqual([]);
  });

  test('who lived on and never released has a right to the signal', () => {
    const { story, id } = lease();
    story.held(id, false, 11_011);
    story.ended('w1.1', 15_000);
    story.phase('over', 20_000);
    expect(broken(checkTruth, story)).toHaveLength(1);
  });

  test('what is over does not come back', () => {
    const { story, id } = lease();
    story.held(id, false, 11_011);
    story.held(id, true, 11_020);
    story.lost(id, 11_030);
    expect(broken(checkTruth, story)).toEqual([expect.stringContaining('after it had been told that it does not')]);
  });

  test('a jump of the wall clock leaves a doubt that may be cleared, unless the loss was told', () => {
    const cleared = lease('w1.1', 'client-clock');
    cleared.story.held(cleared.id, false, 11_011);
    cleared.story.held(cleared.id, true, 11_020);
    cleared.story.does(cleared.id, 'release', [11_030, 11_031], { out: 'ok' });
    expect(broken(checkTruth, cleared.story)).toEqual([]);
    const told = lease('w1.1', 'client-clock');
    told.story.lost(told.id, 11_011);
    told.story.held(told.id, true, 11_020);
    expect(broken(checkTruth, told.story)).toHaveLength(1);
  });

  test('after the release began, no is no loss', () => {
    const story = new Story();
    const id = story.grant({ worker: 'w1.1', call: 1, grant: 2 });
    story.does(id, 'release', [5, 9], { out: 'ok' });
    story.held(id, false, 7);
    expect(broken(checkTruth, story)).toEqual([]);
  });
});

/** What is found of a lease that is lost at 11 s, in the ways a loss can be told, after this was done. */
function losing(...fault: Parameters<Story['fault']>): readonly string[] {
  const found = (['lost', 'no', 'release'] as const).map((told) => {
    const story = new Story();
    const id = story.grant({ worker: 'w1.1', call: 8_000, grant: 8_001, token: 1 });
    story.held(id, true, 8_001);
    story.fault(...fault);
    if (told === 'lost') story.lost(id, 11_000);
    if (told === 'no') story.held(id, false, 11_000);
    if (told === 'release') story.does(id, 'release', [10_999, 11_000], { out: 'lost' });
    return broken(checkKept, story);
  });
  for (const same of found) expect(same).toEqual(found[0]);
  return found[0]!;
}

describe('kept', () => {
  const unexplained = [expect.stringContaining('nothing had happened that costs a lease')];

  test('a lease may be lost by what was done to its worker or to what all need, and by starvation', () => {
    expect(losing('w1.1', 10_100, 10_900)).toEqual([]);
    expect(losing('server', 10_100, 10_900, 'hang')).toEqual([]);
    expect(losing('w1.1', 10_100, 10_900, STARVED)).toEqual([]);
    expect(losing('link', 10_100, 10_900, STARVED)).toEqual([]);
  });

  test('it may not be lost by what was done to another, or beside us', () => {
    expect(losing('w2.1', 10_100, 10_900)).toEqual(unexplained);
    expect(losing('w2.1', 10_100, 10_900, STARVED)).toEqual(unexplained);
    expect(losing(NOBODY, 10_100, 10_900, 'hostile-tenant')).toEqual(unexplained);
  });

  test('what was over two ttl before explains nothing, however long the lease was held', () => {
    expect(losing('server', 9_000, 9_990, 'hang')).toEqual(unexplained);
    expect(losing('server', 9_000, 10_010, 'hang')).toEqual([]);
  });

  test('a setting costs leases only where the engine refuses to work with it', () => {
    expect(losing('server', 10_100, 10_900, 'odd-settings', { harmless: true })).toEqual(unexplained);
    expect(losing('server', 10_100, 10_900, 'odd-settings')).toEqual([]);
  });

  test('an eviction costs leases of its own name alone', () => {
    expect(losing('server', 10_900, 10_900, 'evict', { only: 'mutex-2' })).toEqual(unexplained);
    expect(losing('server', 10_900, 10_900, 'evict', { only: 'mutex-1' })).toEqual([]);
  });

  test('the report says what every lost lease was lost by', () => {
    const story = new Story();
    const lose = (at: number): void => story.lost(story.grant({ worker: 'w1.1', call: at, grant: at + 1 }), at + 2);
    lose(1_000);
    story.fault('link', 5_000, 5_500, STARVED);
    story.fault('w1.1', 5_000, 5_500);
    lose(5_600);
    lose(5_700);
    expect(figuresOf(story.run).lostBy).toEqual({ nothing: 1, 'stall and starved': 2 });
    expect(report(judge(story.events))).toContain('| leases lost | 1 by nothing, 2 by stall and starved |');
  });
});

describe('leftovers', () => {
  test('whatever is left behind is found, and secrets apart', () => {
    const story = new Story();
    expect(broken(checkClean, story)).toEqual([]);
    expect(broken(checkSecrets, story)).toEqual([]);
    for (const what of ['key', 'claim', 'handle', 'promise', 'secret'] as const) story.leftover(what);
    expect(broken(checkClean, story)).toHaveLength(4);
    expect(broken(checkSecrets, story)).toHaveLength(1);
  });
});

describe('the counter', () => {
  test('lost is what was acknowledged and is not in the file', () => {
    const story = new Story();
    const lease = story.grant({ worker: 'w1.1', call: 1, grant: 2 });
    for (const at of [10, 20, 30]) story.does(lease, 'count', [at, at + 1], { out: 'ok' });
    story.does(lease, 'count', [40, 0], {});
    story.counter(2);
    expect(countLostUpdates(story.run)).toEqual({ acknowledged: 3, lost: 1 });
  });
});

describe('validity', () => {
  test('a stall right after the last check hits a holder', () => {
    const story = grants(20);
    const lease = story.grant({ worker: 'w1.1', call: 1_000, grant: 1_001, token: 99 });
    story.held(lease, true, 1_002);
    story.fault('w1.1', 1_003, 2_003);
    story.held(lease, false, 2_004);
    story.fault('w2.1', 1_500, 1_600);
    expect(hitsOf(story.run)).toEqual({ whileHeld: 2, onHolder: 1 });
    expect(whyVoid(story.run)).toEqual([]);
  });

  test('too few acquisitions before the first fault, or no fault that met a lease, prove nothing', () => {
    const few = grants(19);
    few.fault('w1.1', 183);
    expect(whyVoid(few.run)).toEqual([expect.stringContaining('Only 19 acquisitions')]);
    const idle = grants(30);
    idle.fault('server', 400);
    expect(whyVoid(idle.run)).toEqual([expect.stringContaining('No fault began while')]);
  });
});

describe('a lock on paper', () => {
  const papers = fc.record({
    seed: fc.nat(),
    faults: fc.subarray(['stall', 'short-stall', 'kill', 'hang'] as const),
  });

  test('nobody complains about a right one, whatever happens to it', () => {
    fc.assert(
      fc.property(papers, (paper) => {
        const { failures, counted } = judge(paperHistory(paper));
        expect([...failures, ...counted].map(({ what }) => what)).toEqual([]);
      }),
      { numRuns: 20, endOnFailure: true },
    );
  });

  test('the naive one is found out', () => {
    const paper = { seed: 7, faults: ['stall'] as const };
    const verdict = judge(paperHistory({ ...paper, naive: true }));
    expect(verdict.outcome).toBe('failed');
    expect(verdict.failures.map(({ property }) => property)).toContain('belief');
  });
});
