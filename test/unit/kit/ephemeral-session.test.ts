/** What every session on entries that go with it does, whatever the system: answers lost and late, listings behind and ahead. */
import { describe, expect, test } from 'vitest';
import type { Claim, Roster } from '../../../src/core/engine.js';
import { ALL } from '../../../src/core/line.js';
import {
  type Entered,
  EphemeralSession,
  type EphemeralPort,
  type Found,
  type KnownClaim,
} from '../../../src/kit/ephemeral-session.js';
import { VirtualClock } from '../virtual-clock.js';

interface Named {
  readonly token: bigint;
  readonly name: string;
}

/** A system with one line, whose answers and listings the test decides. */
class ScriptedPort implements EphemeralPort<Named, string> {
  /** Entries by name, in line order. */
  readonly entries = new Map<string, string>();
  readonly discarded: string[] = [];
  readonly asked: string[] = [];
  /** Awaited before each answer to an enter. */
  answer: () => Promise<void> = () => Promise.resolve();
  /** Listed instead of what is there. */
  listed: string[] | undefined;
  readonly #footings = new Map<string, Named>();
  #count = 0n;

  async enter({ id, wait }: Claim): Promise<Entered<Named, string>> {
    this.asked.push(`enter ${id}`);
    await this.answer();
    if (!wait && this.entries.size > 0) return { state: 'refused' };
    const footing = this.#footings.get(id) ?? this.make(id);
    return this.#place(footing) as Entered<Named, string>;
  }

  make(id: string, name = `entry of ${id}`): Named {
    this.#count += 1n;
    const footing = { token: this.#count, name };
    this.entries.set(name, id);
    this.#footings.set(id, footing);
    return footing;
  }

  #place(footing: Named): Found<Named, string> {
    const at = [...this.entries.keys()].indexOf(footing.name);
    if (at === -1) return { state: 'absent' };
    return at === 0 ? { state: 'held', footing } : { state: 'waiting', footing, obstacle: 'the first' };
  }

  async leave({ ref, footing }: KnownClaim<Named>): Promise<boolean> {
    this.asked.push(`leave ${ref.id}`);
    return this.entries.delete(footing?.name ?? `entry of ${ref.id}`);
  }

  async reweigh(_claim: Claim, footing: Named): Promise<Named> {
    return footing;
  }

  async beat(): Promise<{ entries: { id: string; name: string }[] }> {
    const names = this.listed ?? [...this.entries.keys()];
    return { entries: names.map((name) => ({ name, id: name.replace(/^(?:second )?entry of |, renamed$/g, '') })) };
  }

  recognize(footing: Named, name: string): Named | undefined {
    return name.startsWith(footing.name) ? { ...footing, name } : undefined;
  }

  async adopt(id: string, name: string): Promise<KnownClaim<Named> | undefined> {
    return { ref: { id, line: LINE }, claim: undefined, footing: { token: 0n, name } };
  }

  discard(name: string): void {
    this.discarded.push(name);
  }

  readonly confirm = async (footings: readonly Named[]): Promise<ReadonlySet<Named>> =>
    new Set(footings.filter(({ name }) => this.entries.has(name)));

  async look({ footing }: { readonly footing: Named }): Promise<Found<Named, string>> {
    return this.#place(footing);
  }

  watch(): { covers(): boolean; close(): void } {
    return { covers: () => true, close: () => {} };
  }

  crowd(): never {
    throw new Error('there are no semaphores here');
  }

  async close(): Promise<void> {
    this.entries.clear();
  }
}

const LINE = { kind: 'lock', name: 'a' } as const;
const NOTHING: Roster = { count: 0, held: 0, checksum: 0, unsettled: [] };

function claimOf(id: string, serial: number, wait = true): Claim {
  return { id, line: LINE, serial, weight: ALL, capacity: ALL, wait, note: '' };
}

function opened(): { port: ScriptedPort; session: EphemeralSession<Named, string>; told: string[] } {
  const port = new ScriptedPort();
  const told: string[] = [];
  const listener = {
    granted: (id: string, token: bigint) => void told.push(`granted ${id} ${token}`),
    lost: (id: string) => void told.push(`lost ${id}`),
    ended: () => void told.push('ended'),
    hinted: () => void told.push('hinted'),
  };
  return { port, told, session: new EphemeralSession({ ttlMs: 3_000, clock: new VirtualClock(), listener, port }) };
}

describe('an enter', () => {
  test('that is repeated while the first has no answer yet asks once', async () => {
    const { port, session } = opened();
    const places = await Promise.all([session.enter(claimOf('x', 1)), session.enter(claimOf('x', 1))]);
    expect(places).toEqual([
      { state: 'held', token: 1n },
      { state: 'held', token: 1n },
    ]);
    expect(port.asked).toEqual(['enter x']);
  });

  test('is answered before its leave is sent', async () => {
    const { port, session } = opened();
    let answer!: () => void;
    port.answer = () => new Promise((resolve) => (answer = resolve));
    const entered = session.enter(claimOf('x', 1));
    const left = session.leave(claimOf('x', 1));
    expect(port.asked).toEqual(['enter x']);
    answer();
    expect(await entered).toMatchObject({ state: 'held' });
    expect(await left).toBe(true);
    expect(port.entries.size).toBe(0);
  });

  test('that was refused leaves nothing behind', async () => {
    const { session } = opened();
    await session.enter(claimOf('x', 1));
    expect(await session.enter(claimOf('y', 2, false))).toEqual({ state: 'refused' });
    expect(await session.leave(claimOf('y', 2))).toBe(false);
  });

  test('of one that was granted meanwhile says so, though an older look says that it waits', async () => {
    const { port, session, told } = opened();
    await session.enter(claimOf('x', 1));
    expect(await session.enter(claimOf('y', 2))).toEqual({ state: 'waiting' });
    await session.leave(claimOf('x', 1));
    await session.beat(NOTHING);
    expect(told).toEqual(['granted y 2']);
    const [entry] = port.entries;
    port.entries.clear();
    port.entries.set('older', 'x').set(...entry!);
    expect(await session.enter(claimOf('y', 2))).toEqual({ state: 'held', token: 2n });
  });
});

describe('a beat', () => {
  const one: Roster = { count: 1, held: 1, checksum: 1, unsettled: [] };

  test('that finds what the core believes says nothing more', async () => {
    const { session } = opened();
    await session.enter(claimOf('x', 1));
    expect(await session.beat(one)).toEqual({ alive: true });
  });

  test('shows one whose enter was carried out after its leave, and that one can be left', async () => {
    const { port, session } = opened();
    port.make('late');
    expect(await session.beat(NOTHING)).toEqual({
      alive: true,
      index: [{ id: 'late', line: LINE, state: 'waiting', token: undefined }],
    });
    expect(await session.leave({ id: 'late', line: LINE })).toBe(true);
    expect(await session.beat(NOTHING)).toEqual({ alive: true });
  });

  test('does not take one for lost that a listing lacks and that is there', async () => {
    const { port, session } = opened();
    await session.enter(claimOf('x', 1));
    port.listed = [];
    expect(await session.beat(one)).toEqual({ alive: true });
    port.entries.clear();
    expect(await session.beat(one)).toEqual({ alive: true, index: [] });
  });

  test('finds one under its other name, so that its leave takes that away', async () => {
    const { port, session } = opened();
    await session.enter(claimOf('x', 1));
    port.entries.clear();
    port.entries.set('entry of x, renamed', 'x');
    expect(await session.beat(one)).toEqual({ alive: true });
    expect(await session.leave(claimOf('x', 1))).toBe(true);
  });

  test('takes a second entry of the same claim away', async () => {
    const { port, session } = opened();
    await session.enter(claimOf('x', 1));
    port.entries.set('second entry of x', 'x');
    expect(await session.beat(one)).toEqual({ alive: true });
    expect(port.discarded).toEqual(['second entry of x']);
  });
});

test("an eviction of a claim that has left is nobody's", async () => {
  const { session, told } = opened();
  await session.enter(claimOf('x', 1));
  expect(session.evicted('x', 'why')).toBe(true);
  await session.leave(claimOf('x', 1));
  expect(session.evicted('x', 'why')).toBe(false);
  expect(told).toEqual(['lost x']);
});

test('what is closed knows nobody', async () => {
  const { session } = opened();
  await session.enter(claimOf('x', 1));
  await session.close();
  expect(await session.enter(claimOf('y', 2))).toEqual({ state: 'gone' });
  expect(await session.beat(NOTHING)).toEqual({ alive: false });
});
