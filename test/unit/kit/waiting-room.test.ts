/** The waiting room: looks that fail, come late or are not asked for, and who must not be touched by others. */
import { beforeEach, describe, expect, test } from 'vitest';
import {
  type Crowd,
  type Seen,
  type Lookout,
  type Verdict,
  type Watcher,
  WaitingRoom,
  type ObstacleWatch,
} from '../../../src/kit/waiting-room.js';
import { Pending } from '../scripted-engine.js';
import { settled, VirtualClock } from '../virtual-clock.js';

/** Lines as lists of names: the first holds, or as many as there are permits. What stands in the way is the one before. */
class ScriptedLines implements Lookout<Watcher, string> {
  readonly lines = new Map<string, string[]>();
  permits = 1;
  looks = 0;
  failing = false;
  /** Answers are given when it resolves, though they were made before. */
  delay: Promise<void> | undefined;
  /** Whether a watch that is open makes another of the same one needless. */
  lasting = false;
  /** Open watches: what they are of, and whom they tell. */
  readonly watches = new Set<{ readonly of: string; readonly changed: () => void }>();

  async look({ key }: Watcher): Promise<Seen<string>> {
    const line = await this.#answer([...this.lines.values()].find((names) => names.includes(key)) ?? []);
    const place = line.indexOf(key);
    if (place === -1) return { state: 'absent' };
    return place === 0 ? { state: 'held' } : { state: 'waiting', obstacle: line[place - 1]! };
  }

  watch(of: string, changed: () => void): ObstacleWatch<string> {
    const watch = { of, changed };
    this.watches.add(watch);
    return {
      covers: (other) => this.lasting && this.watches.has(watch) && other === of,
      close: () => this.watches.delete(watch),
    };
  }

  crowd({ crowd }: Watcher, changed: () => void): Crowd<Watcher, string> {
    const watch = { of: crowd!, changed };
    this.watches.add(watch);
    return {
      joined: (told) => told === 'told before',
      look: async (waiters): Promise<Verdict<Watcher>> => {
        const line = await this.#answer(this.lines.get(crowd!) ?? []);
        const standing = [...waiters.values()].filter(({ key }) => line.includes(key));
        const absent = [...waiters.values()].filter(({ key }) => !line.includes(key));
        return { held: standing.filter(({ key }) => line.indexOf(key) < this.permits), absent };
      },
      close: () => this.watches.delete(watch),
    };
  }

  /** Tells those who watch this. */
  tell(of: string): void {
    for (const watch of [...this.watches]) if (watch.of === of) watch.changed();
  }

  leave(line: string, key: string): void {
    this.lines.set(
      line,
      this.lines.get(line)!.filter((name) => name !== key),
    );
  }

  async #answer(line: readonly string[]): Promise<readonly string[]> {
    this.looks += 1;
    if (this.failing) throw new Error('nobody answers');
    const answer = [...line];
    await this.delay;
    return answer;
  }
}

let clock: VirtualClock;
let lines: ScriptedLines;
let room: WaitingRoom<Watcher, string>;
/** What waiters were told: 'granted a', 'vanished a'. */
let told: string[];

beforeEach(() => {
  clock = new VirtualClock();
  lines = new ScriptedLines();
  room = new WaitingRoom(clock, lines);
  told = [];
});

function waiterOf(key: string, crowd?: string): Watcher {
  return {
    key,
    crowd,
    granted: () => void told.push(`granted ${key}`),
    vanished: () => void told.push(`vanished ${key}`),
  };
}

/** Answers wait from now on, until this is called. */
function answersWait(): () => void {
  const gate = new Pending<void>();
  lines.delay = gate.promise;
  return () => {
    lines.delay = undefined;
    gate.resolve();
  };
}

describe('who waits alone', () => {
  test('looks when what is in its way has changed, watches the next, and holds when it is the first', async () => {
    lines.lines.set('x', ['a', 'b', 'c']);
    room.wait(waiterOf('c'), 'b');
    lines.leave('x', 'b');
    lines.tell('b');
    await settled();
    expect([...lines.watches].map(({ of }) => of)).toEqual(['a']);
    lines.leave('x', 'a');
    lines.tell('a');
    await settled();
    expect(told).toEqual(['granted c']);
    expect(lines.watches.size).toBe(0);
    expect(lines.looks).toBe(2);
  });

  test('is told when it does not stand in line any more', async () => {
    lines.lines.set('x', ['a']);
    room.wait(waiterOf('b'), 'a');
    lines.tell('a');
    await settled();
    expect(told).toEqual(['vanished b']);
  });

  test('looks again and again while nobody answers, and keeps no process alive by it', async () => {
    lines.lines.set('x', ['b']);
    lines.failing = true;
    room.wait(waiterOf('b'), 'a');
    lines.tell('a');
    await clock.advance(10_000);
    expect(lines.looks).toBeGreaterThan(10);
    expect(clock.keepsProcessAlive).toBe(false);
    lines.failing = false;
    await clock.advance(1_000);
    expect(told).toEqual(['granted b']);
  });

  test('hears nothing more when it has stopped, neither of a look under way nor of one that is to be repeated', async () => {
    lines.lines.set('x', ['b', 'c']);
    const answer = answersWait();
    const stop = room.wait(waiterOf('b'), 'a');
    lines.tell('a');
    stop();
    answer();
    await settled();
    lines.failing = true;
    const stopSecond = room.wait(waiterOf('c'), 'b');
    lines.tell('b');
    await settled();
    const { looks } = lines;
    stopSecond();
    lines.failing = false;
    await clock.advance(10_000);
    expect(told).toEqual([]);
    expect(lines.looks).toBe(looks);
    expect(lines.watches.size).toBe(0);
  });

  test('looks once more if something changed while it looked: the answer may be older than that', async () => {
    lines.lines.set('x', ['a', 'b']);
    lines.lasting = true;
    room.wait(waiterOf('b'), 'a');
    const answer = answersWait();
    room.check();
    await settled();
    lines.leave('x', 'a');
    lines.tell('a');
    answer();
    await settled();
    expect(told).toEqual(['granted b']);
  });

  test('is watched anew after a look, unless its watch still tells', async () => {
    lines.lines.set('x', ['a', 'b']);
    room.wait(waiterOf('b'), 'a');
    const [first] = lines.watches;
    room.check();
    await settled();
    const [second] = lines.watches;
    expect(second).not.toBe(first);
    lines.lasting = true;
    room.check();
    await settled();
    expect([...lines.watches]).toEqual([second]);
  });

  test('looks with the beats though nothing was told, a few of a crowd each time, and all in turn', async () => {
    const names = Array.from({ length: 40 }, (_, at) => `w${at}`);
    lines.lines.set('x', ['a', ...names]);
    for (const [at, name] of names.entries()) room.wait(waiterOf(name), at === 0 ? 'a' : names[at - 1]!);
    room.check();
    await settled();
    const { looks } = lines;
    expect(looks).toBeLessThan(names.length);
    lines.lines.set('x', [names.at(-1)!]);
    for (let beat = 0; beat < 2; beat += 1) {
      room.check();
      await settled();
    }
    expect(told).toContain(`granted ${names.at(-1)}`);
  });
});

describe('a crowd', () => {
  test('shares one watch and one look, and is served as permits come free', async () => {
    lines.permits = 2;
    lines.lines.set('s', ['a', 'b', 'c', 'd', 'e']);
    for (const key of ['c', 'd', 'e']) room.wait(waiterOf(key, 's'), 'line');
    expect(lines.watches.size).toBe(1);
    expect(lines.looks).toBe(0);
    lines.leave('s', 'a');
    lines.tell('s');
    await settled();
    expect(told).toEqual(['granted c']);
    expect(lines.looks).toBe(1);
    lines.leave('s', 'b');
    lines.leave('s', 'd');
    lines.tell('s');
    await settled();
    expect(told).toEqual(['granted c', 'granted e', 'vanished d']);
    expect(lines.watches.size).toBe(0);
  });

  test('looks for one that joins if it may have been told before it was known, or while others look', async () => {
    lines.lines.set('s', ['b', 'c', 'd']);
    room.wait(waiterOf('b', 's'), 'told before');
    await settled();
    expect(told).toEqual(['granted b']);
    lines.lines.set('s', ['x', 'c', 'd']);
    room.wait(waiterOf('c', 's'), 'line');
    const answer = answersWait();
    room.check();
    await settled();
    lines.lines.set('s', ['d', 'c']);
    room.wait(waiterOf('d', 's'), 'line');
    answer();
    await settled();
    expect(told).toEqual(['granted b', 'granted d']);
  });

  test('is not touched by one that was granted before it came, when that one leaves', async () => {
    lines.lines.set('s', ['a', 'b']);
    const stopFirst = room.wait(waiterOf('a', 's'), 'told before');
    await settled();
    room.wait(waiterOf('b', 's'), 'line');
    stopFirst();
    expect(lines.watches.size).toBe(1);
    // Still one crowd: whoever comes now joins it, and a beat looks for it.
    room.wait(waiterOf('c', 's'), 'line');
    expect(lines.watches.size).toBe(1);
    lines.leave('s', 'a');
    room.check();
    await settled();
    expect(told).toEqual(['granted a', 'granted b', 'vanished c']);
  });

  test('of one semaphore hears nothing of another', async () => {
    lines.lines.set('s', ['a']).set('t', ['x', 'b']);
    room.wait(waiterOf('a', 's'), 'line');
    room.wait(waiterOf('b', 't'), 'line');
    lines.tell('s');
    await settled();
    expect(told).toEqual(['granted a']);
    expect([...lines.watches].map(({ of }) => of)).toEqual(['t']);
  });
});
