import type { EngineBug } from '../test-run.js';

const FILE = 'test/conformance/memory.test.ts';

/** All are found under a virtual clock: what takes a ttl takes no time. */
export const memory: readonly EngineBug[] = [
  {
    name: 'waiters do not hear of a holder’s death',
    edits: [
      {
        file: 'engines/memory/index.ts',
        find: '      this.#space.reap(timeOf(this.#clock));\n      if',
        replace: '      if',
      },
    ],
    foundBy: { file: FILE, test: 'a stopped holder’s lock goes to the next' },
    sample: true,
  },
  {
    name: 'only the clock that came first reaps',
    edits: [
      {
        file: 'engines/memory/index.ts',
        find: 'if (!this.#reapers.has(clock))',
        replace: 'if (this.#reapers.size === 0)',
      },
    ],
    foundBy: { file: FILE, test: 'a stopped holder’s lock goes to the next' },
  },
  {
    name: 'an enter is refused because of the dead',
    edits: [
      {
        file: 'engines/memory/space.ts',
        find: 'claim: Claim, time: SpaceTime): Place {\n    this.reap(time);',
        replace: 'claim: Claim, time: SpaceTime): Place {',
      },
    ],
    foundBy: { file: FILE, test: 'an enter reaps the dead before it refuses' },
  },
  {
    name: 'a beat proves nothing',
    edits: [
      { file: 'engines/memory/space.ts', find: '    session.expiresAt = time.now + session.ttlMs;\n', replace: '' },
    ],
    foundBy: { file: FILE, test: 'a living holder keeps its lock for longer than its ttl' },
  },
  {
    name: 'of a session that died only what it held leaves the line',
    edits: [
      {
        file: 'engines/memory/space.ts',
        find: 'for (const claim of [...claims.values()]) this.#remove(claim);',
        replace: 'for (const claim of [...claims.values()]) if (claim.spot.held) this.#remove(claim);',
      },
    ],
    foundBy: { file: FILE, test: 'a stopped waiter leaves the line while the holder goes on' },
  },
  {
    name: 'a leave does not ask whose claim it is',
    edits: [
      {
        file: 'engines/memory/space.ts',
        find: 'const claim = session?.claims.get(ref.id);',
        replace: 'const claim = [...this.#sessions.values()].flatMap((any) => any.claims.get(ref.id) ?? [])[0];',
      },
    ],
    foundBy: { file: FILE, test: 'a session can’t leave another’s claim' },
  },
  {
    name: 'two claims of one microsecond have the same token',
    edits: [
      {
        file: 'engines/memory/space.ts',
        find: 'micros > this.#lastToken ? micros : this.#lastToken + 1n',
        replace: 'micros > this.#lastToken ? micros : this.#lastToken',
      },
    ],
    foundBy: { file: FILE, test: 'tokens of tries grow as well' },
  },
  {
    name: 'an evicted claim gives up its place before its session knows',
    edits: [
      {
        file: 'engines/memory/space.ts',
        find: '        item.evicted = reason;\n',
        replace: '        item.evicted = reason;\n        this.#remove(item);\n',
      },
    ],
    foundBy: { file: FILE, test: 'an evicted claim keeps its place until its session' },
  },
];
