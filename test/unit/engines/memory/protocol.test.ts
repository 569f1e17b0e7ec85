import * as fc from 'fast-check';
import { describe, expect, test, vi } from 'vitest';
import type { Claim, LineRef, Roster, SessionListener } from '../../../../src/core/engine.js';
import type { Loss } from '../../../../src/core/errors.js';
import { ALL } from '../../../../src/core/line.js';
import { memory } from '../../../../src/engines/memory/index.js';
import { Space, type SpaceTime } from '../../../../src/engines/memory/protocol.js';
import { Holdfast } from '../../../../src/index.js';
import { expectSame } from '../../same.js';
import { selfWindingClock } from '../../self-winding-clock.js';
import { keyOf, type ModelClaim, SpaceModel } from './space-model.js';

const TTL_MS = [1_000, 2_500, 10_000];

interface LineKindOfTest {
  readonly ref: LineRef;
  readonly capacities: readonly number[];
  readonly weights: readonly number[];
}

/** A mutex, a read/write lock, and a semaphore whose users do not agree on its size; the last two share a name. */
const LINES: readonly LineKindOfTest[] = [
  { ref: { kind: 'lock', name: 'order' }, capacities: [ALL], weights: [ALL] },
  { ref: { kind: 'lock', name: 'catalog' }, capacities: [ALL], weights: [1, ALL] },
  { ref: { kind: 'semaphore', name: 'catalog' }, capacities: [3, 3, 3, 4], weights: [1, 2, 3] },
];

const nat = fc.nat({ max: 1_000 });
const delta = fc.oneof({ weight: 4, arbitrary: fc.constant(0) }, fc.constantFrom(-1, 1));

const step = fc.oneof(
  { weight: 3, arbitrary: fc.record({ do: fc.constant('open' as const), ttl: nat }) },
  {
    weight: 10,
    arbitrary: fc.record({
      do: fc.constant('enter' as const),
      session: nat,
      line: nat,
      weight: nat,
      capacity: nat,
      wait: fc.boolean(),
    }),
  },
  { weight: 2, arbitrary: fc.record({ do: fc.constant('enterAgain' as const), claim: nat }) },
  { weight: 6, arbitrary: fc.record({ do: fc.constant('leave' as const), claim: nat }) },
  { weight: 2, arbitrary: fc.record({ do: fc.constant('reweigh' as const), claim: nat, weight: nat }) },
  {
    weight: 4,
    arbitrary: fc.record({
      do: fc.constant('beat' as const),
      session: nat,
      unsettled: fc.array(nat, { maxLength: 2 }),
      count: delta,
      held: delta,
      checksum: delta,
    }),
  },
  { weight: 1, arbitrary: fc.record({ do: fc.constant('close' as const), session: nat }) },
  { weight: 1, arbitrary: fc.record({ do: fc.constant('evict' as const), claim: nat }) },
  {
    weight: 4,
    arbitrary: fc.record({
      do: fc.constant('pass' as const),
      ms: fc.constantFrom<number>(1, 400, 999, 1_000, 3_000),
      wallMs: fc.constantFrom<number>(0, 0, 0, -5_000, 5_000),
    }),
  },
  { weight: 1, arbitrary: fc.record({ do: fc.constant('reap' as const) }) },
);

/** The steps that free what the dead had before they do anything else. */
const REAPING: ReadonlySet<string> = new Set(['enter', 'enterAgain', 'leave', 'beat', 'reap']);

type Step = typeof step extends fc.Arbitrary<infer T> ? T : never;

/** The space, the model, and what the space told the sessions since the last step. */
class Bench {
  readonly space = new Space();
  readonly model = new SpaceModel();
  readonly sessionIds: string[] = [];
  /** All that ever entered or tried to. */
  readonly claims: { session: string; claim: Claim }[] = [];
  granted: { session: string; id: string; token: bigint }[] = [];
  lost: { session: string; id: string; loss: Loss }[] = [];
  #serials = 0;
  #newestToken = 0n;

  get time(): { now: number; wall: number } {
    return { now: this.model.now, wall: this.model.wall };
  }

  listener(session: string): SessionListener {
    return {
      granted: (id, token) => this.granted.push({ session, id, token }),
      lost: (id, loss) => this.lost.push({ session, id, loss }),
      ended: () => {
        throw new Error('A space has nobody to tell that a session ended: it is the session that fell silent.');
      },
      hinted: () => undefined,
    };
  }

  do(step: Step): void {
    this.granted = [];
    this.lost = [];
    const before = this.model.held();
    // Who comes by after a death reaps first: that may grant what the step itself then takes away again.
    if (REAPING.has(step.do)) this.model.reap();
    const reaped = this.model.held();
    const answered = this.#play(step);
    this.#expectSameLines();
    const granted = [...without(reaped, before), ...without(this.model.held(), reaped)];
    this.#expectGrants(granted.filter(({ id }) => id !== answered));
  }

  /** Plays the step on both sides and compares the answers. Gives the new claim whose grant the answer tells. */
  #play(step: Step): string | undefined {
    if (step.do === 'enter') return this.#enter(step);
    if (step.do === 'enterAgain') return this.#enterAgain(step.claim);
    if (step.do === 'open') this.#open(TTL_MS[step.ttl % TTL_MS.length]!);
    else if (step.do === 'leave') this.#leave(step.claim);
    else if (step.do === 'reweigh') this.#reweigh(step.claim, step.weight);
    else if (step.do === 'beat') this.#beat(step);
    else if (step.do === 'close') this.#close(pick(this.sessionIds, step.session)!);
    else if (step.do === 'evict') this.#evict(step.claim);
    else if (step.do === 'reap') this.#reap();
    else this.#pass(step.ms, step.wallMs);
    return undefined;
  }

  #close(id: string): void {
    this.space.close(id);
    this.model.close(id);
  }

  #reap(): void {
    this.space.reap(this.time);
    this.model.reap();
  }

  #pass(ms: number, wallMs: number): void {
    this.model.now += ms;
    this.model.wall += ms + wallMs;
  }

  #open(ttlMs: number): void {
    const id = `s${this.sessionIds.length}`;
    this.sessionIds.push(id);
    this.space.open(id, ttlMs, this.listener(id), this.time);
    this.model.open(id, ttlMs);
  }

  #enter(step: Extract<Step, { do: 'enter' }>): string | undefined {
    const session = pick(this.sessionIds, step.session)!;
    const { ref, capacities, weights } = pick(LINES, step.line)!;
    this.#serials += 1;
    const claim: Claim = {
      id: `c${this.#serials}`,
      line: ref,
      serial: this.#serials,
      weight: pick(weights, step.weight)!,
      capacity: pick(capacities, step.capacity)!,
      wait: step.wait,
      note: '{}',
    };
    this.claims.push({ session, claim });
    return this.#sendEnter(session, claim);
  }

  #enterAgain(number: number): string | undefined {
    const again = pick(this.claims, number);
    return again && this.#sendEnter(again.session, again.claim);
  }

  #sendEnter(session: string, claim: Claim): string | undefined {
    const known = this.model.find(session, claim.id);
    const place = this.space.enter(session, claim, this.time);
    const expected = this.model.enter(session, claim, () => this.#tokenOf(claim));
    expectSame(place, expected);
    const entered = this.model.find(session, claim.id);
    if (!known && entered) {
      expect(entered.token, 'tokens grow in order of entering').toBeGreaterThan(this.#newestToken);
      expect(entered.token, 'a token is not below the clock').toBeGreaterThanOrEqual(
        BigInt(Math.floor(this.model.wall * 1_000)),
      );
      this.#newestToken = entered.token;
    }
    return place.state === 'held' && !known ? claim.id : undefined;
  }

  /** Tokens are the space's to choose; the model only says what must be true of them. */
  #tokenOf({ id, line }: Claim): bigint {
    for (const { kind, claims } of this.space.inspect({ name: line.name })) {
      const found = claims.find((claim) => claim.id === id);
      if (kind === line.kind && found?.token !== undefined) return found.token;
    }
    throw new Error(`${id} should stand in its line and does not.`);
  }

  #leave(number: number): void {
    const at = pick(this.claims, number);
    if (!at) return;
    const left = this.space.leave(at.session, at.claim, this.time);
    expectSame(left, this.model.leave(at.session, at.claim.id));
    const grants = [...this.granted];
    expectSame(this.space.leave(at.session, at.claim, this.time), false, 'a second leave finds nothing');
    expectSame(this.granted, grants, 'a second leave grants nothing');
  }

  #reweigh(number: number, weight: number): void {
    const at = pick(this.claims, number);
    if (!at) return;
    const { weights } = LINES.find(({ ref }) => keyOf(ref) === keyOf(at.claim.line))!;
    const lighter = pick(weights, weight)!;
    this.space.reweigh(at.session, at.claim, lighter);
    this.model.reweigh(at.session, at.claim.id, lighter);
  }

  #beat(step: Extract<Step, { do: 'beat' }>): void {
    const session = pick(this.sessionIds, step.session)!;
    // Also ids of others, and ids that never reached the engine: a roster may name any claim with a call in flight.
    const unsettled = step.unsettled.map((number) => pick(this.claims, number)?.claim.id ?? 'never-sent');
    const truth = this.model.roster(session, unsettled);
    const roster: Roster = {
      count: truth.count + step.count,
      held: truth.held + step.held,
      checksum: (truth.checksum + step.checksum) >>> 0,
      unsettled,
    };
    const differs = step.count !== 0 || step.held !== 0 || step.checksum !== 0;
    const pulse = this.space.beat(session, roster, this.time);
    expectSame(pulse, this.model.beat(session, differs));
    const evicted = this.model.claimsOf(session).filter((claim) => claim.evicted !== undefined);
    expectSame(
      this.lost,
      evicted.map(({ id, evicted }) => ({ session, id, loss: { reason: 'evicted', detail: evicted } })),
    );
  }

  #evict(number: number): void {
    const at = pick(this.claims, number);
    if (!at) return;
    const { id, line } = at.claim;
    const reason = `reason ${number}`;
    const found = this.model.evict(id, line.name, reason);
    expectSame(this.space.evict(line.name, id, reason), found);
    expectSame(this.lost, found ? [{ session: at.session, id, loss: { reason: 'evicted', detail: reason } }] : []);
    expectSame(this.space.evict('another line', id, reason), false, 'an eviction names the right line');
  }

  #expectSameLines(): void {
    const lines = [...this.space.inspect({})].map(({ kind, name, capacity, claims }) => ({
      key: keyOf({ kind, name }),
      capacity,
      claims: claims.map(({ id, state, weight, token }) => ({ id, state, weight, token })),
    }));
    expectSame(
      lines.sort((a, b) => (a.key < b.key ? -1 : 1)),
      this.model.view(),
    );
    expectSame(this.space.claimCount, this.model.view().flatMap(({ claims }) => claims).length);
  }

  #expectGrants(expected: readonly ModelClaim[]): void {
    for (const { ref } of LINES) {
      const key = keyOf(ref);
      const told = this.granted.filter(({ id }) => this.#lineOf(id) === key);
      const due = expected
        .filter((claim) => claim.line === key)
        .map(({ session, id, token }) => ({ session, id, token }));
      expectSame(told, due, 'each new holder is told once, in line order, and nobody else');
    }
  }

  #lineOf(id: string): string {
    return keyOf(this.claims.find(({ claim }) => claim.id === id)!.claim.line);
  }
}

function without(claims: readonly ModelClaim[], known: readonly ModelClaim[]): ModelClaim[] {
  return claims.filter((claim) => !known.includes(claim));
}

function pick<T>(from: readonly T[], number: number): T | undefined {
  return from[number % from.length];
}

describe('a space', () => {
  test('does after every step what the rule says, and tells each new holder exactly once', () => {
    fc.assert(
      fc.property(fc.array(step, { maxLength: 80, size: 'max' }), (steps) => {
        const bench = new Bench();
        bench.do({ do: 'open', ttl: 2 });
        bench.do({ do: 'open', ttl: 0 });
        for (const one of steps) bench.do(one);
      }),
      { numRuns: 300 },
    );
  });

  test('when everybody is dead or gone, nothing is left', () => {
    fc.assert(
      fc.property(fc.array(step, { maxLength: 40, size: 'max' }), (steps) => {
        const bench = new Bench();
        bench.do({ do: 'open', ttl: 0 });
        for (const one of steps) bench.do(one);
        bench.do({ do: 'pass', ms: 10_000, wallMs: 0 });
        bench.do({ do: 'reap' });
        expect([...bench.space.inspect({})]).toEqual([]);
        expect(bench.space.claimCount).toBe(0);
        expect(bench.space.nextDeath).toBe(Number.POSITIVE_INFINITY);
      }),
      { numRuns: 100 },
    );
  });

  test('a dead session never beats itself alive again', () => {
    const space = new Space();
    const silent: SessionListener = {
      granted: () => undefined,
      lost: () => undefined,
      ended: () => undefined,
      hinted: () => undefined,
    };
    const nothing: Roster = { count: 0, held: 0, checksum: 0, unsettled: [] };
    space.open('s', 1_000, silent, { now: 0, wall: 0 });
    expect(space.beat('s', nothing, { now: 999, wall: 0 })).toEqual({ alive: true });
    expect(space.beat('s', nothing, { now: 1_999, wall: 0 })).toEqual({ alive: false });
    expect(space.beat('s', nothing, { now: 2_000, wall: 0 })).toEqual({ alive: false });
  });

  test('a claim of one that died in the same moment as its holder is not granted on the way', () => {
    const space = new Space();
    const granted: string[] = [];
    const listener: SessionListener = {
      granted: (id) => granted.push(id),
      lost: () => undefined,
      ended: () => undefined,
      hinted: () => undefined,
    };
    for (const [at, session] of ['holder', 'dead', 'alive'].entries()) {
      space.open(session, session === 'alive' ? 5_000 : 1_000, listener, { now: 0, wall: 0 });
      const claim = { id: session, line: { kind: 'lock', name: 'a' }, serial: at, weight: ALL, capacity: ALL } as const;
      space.enter(session, { ...claim, wait: true, note: '' }, { now: 0, wall: 0 });
    }
    space.reap({ now: 1_000, wall: 0 });
    expect(granted).toEqual(['alive']);
  });

  test('a name and a prefix choose what inspect lists', () => {
    const space = new Space();
    const silent: SessionListener = {
      granted: () => undefined,
      lost: () => undefined,
      ended: () => undefined,
      hinted: () => undefined,
    };
    space.open('s', 1_000, silent, { now: 0, wall: 0 });
    for (const [at, name] of ['a', 'a:1', 'a:2', 'b'].entries()) {
      const claim = { id: name, line: { kind: 'lock', name }, serial: at, weight: ALL, capacity: ALL } as const;
      space.enter('s', { ...claim, wait: true, note: '' }, { now: 0, wall: 0 });
    }
    const names = (query: { name?: string; prefix?: string }): string[] =>
      [...space.inspect(query)].map(({ name }) => name);
    expect(names({})).toEqual(['a', 'a:1', 'a:2', 'b']);
    expect(names({ name: 'a' })).toEqual(['a']);
    expect(names({ prefix: 'a:' })).toEqual(['a:1', 'a:2']);
    expect(names({ name: 'b', prefix: 'a' })).toEqual([]);
  });
});

describe("a register's fence", () => {
  const access = fc.record({
    do: fc.constantFrom('look', 'read', 'open', 'write'),
    token: fc.bigInt({ min: 1n, max: 9n }),
    ms: fc.nat({ max: 50 }),
  });

  test('a reader needs a token above every writer’s, a writer one not below a writer’s and above every reader’s', () => {
    fc.assert(
      fc.property(fc.array(access, { maxLength: 40, size: 'max' }), (accesses) => {
        const space = new Space();
        let maxRead = 0n;
        let maxWrite = 0n;
        let now = 0;
        let entry: { value: string; token: bigint; at: number } | undefined;
        for (const [number, { do: action, token, ms }] of accesses.entries()) {
          now += ms;
          const time = { now, wall: 0 };
          const mayRead = token > maxWrite;
          const mayWrite = token >= maxWrite && token > maxRead;
          const newest = maxRead > maxWrite ? maxRead : maxWrite;
          const allowed = action === 'look' || (action === 'read' ? mayRead : mayWrite);
          if (action === 'write') {
            const written = space.write('r', `value ${number}`, token, time);
            expectSame(written, allowed ? { ok: true, value: undefined } : { ok: false, newest });
            if (allowed) entry = { value: `value ${number}`, token, at: now };
          } else {
            const fence =
              action === 'look' ? undefined : ({ token, mode: action === 'read' ? 'read' : 'write' } as const);
            const seen = entry && { value: entry.value, token: entry.token, ageMs: now - entry.at };
            expectSame(space.read('r', fence, time), allowed ? { ok: true, value: seen } : { ok: false, newest });
          }
          if (!allowed || action === 'look') continue;
          if (action === 'read') maxRead = token > maxRead ? token : maxRead;
          else maxWrite = token;
        }
        expect(space.read('another', undefined, { now, wall: 0 })).toEqual({ ok: true, value: undefined });
      }),
      { numRuns: 500 },
    );
  });

  test('tokens are compared as integers: two that are one double are still two', () => {
    const space = new Space();
    const big = 2n ** 60n;
    const time = { now: 0, wall: 0 };
    expect(space.write('r', 'new', big + 1n, time).ok).toBe(true);
    expect(space.write('r', 'old', big, time)).toEqual({ ok: false, newest: big + 1n });
  });
});

const at = (now: number): SpaceTime => ({ now, wall: 0 });

describe('a register that is kept for a time', () => {
  test('is there until the last moment, and then neither its value nor its fence', () => {
    const space = new Space();
    space.write('r', 'value', 9n, at(0), 50);
    expect(space.read('r', undefined, at(49))).toMatchObject({ value: { value: 'value', ageMs: 49 } });
    expect(space.write('r', 'old', 8n, at(49))).toEqual({ ok: false, newest: 9n });
    expect(space.read('r', undefined, at(50))).toEqual({ ok: true, value: undefined });
    space.write('s', 'value', 9n, at(50), 50);
    expect(space.write('s', 'anew', 1n, at(100))).toEqual({ ok: true, value: undefined });
  });

  test('goes though nobody asks for it again, and those that are kept stay', () => {
    const space = new Space();
    for (let job = 0; job < 1_000; job += 1) space.write(`once ${job}`, '10', 1n, at(job), 10);
    space.write('for ever', 'value', 1n, at(1_000));
    space.write('for ever after all', 'value', 1n, at(1_000), 10);
    space.write('for ever after all', 'value', 1n, at(1_000));
    space.write('long', 'value', 1n, at(1_000), 3_600_000);
    space.reap(at(5_000));
    expect(space.registerCount).toBe(3);
    space.reap(at(5_000 + 3_600_000));
    expect(space.registerCount).toBe(2);
  });

  test('a thousand runs of once leave nothing', async () => {
    const write = vi.spyOn(Space.prototype, 'write');
    const clock = selfWindingClock();
    await using locks = new Holdfast(memory('once leaves nothing'), { clock });
    const runs = Array.from({ length: 1_000 }, (_, job) => locks.once(`job ${job}`, { atLeast: 10 }, () => {}));
    expect((await Promise.all(runs)).every(({ ran }) => ran)).toBe(true);
    const space = write.mock.contexts[0] as Space;
    write.mockRestore();
    expect(space.registerCount).toBe(1_000);
    // Its beats are all that happens.
    while (space.registerCount > 0) await new Promise<void>((resolve) => void clock.timer(1_000, resolve));
  });
});
