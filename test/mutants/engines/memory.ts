import type { TestedBug } from '../test-run.js';

const space = 'engines/memory/protocol.ts';
const unit = 'test/unit/engines/memory/protocol.test.ts';
const suite = 'test/conformance/memory.test.ts';
const byTheRule = { file: unit, test: 'does after every step what the rule says' };

export const memory: readonly TestedBug[] = [
  {
    name: 'a beat revives a session that has expired and that nobody has buried',
    edits: [
      {
        file: space,
        find: `  beat(sessionId: string, roster: Roster, time: SpaceTime): Pulse {
    this.reap(time);`,
        replace: `  beat(sessionId: string, roster: Roster, time: SpaceTime): Pulse {`,
      },
    ],
    foundBy: { file: unit, test: 'a dead session never beats itself alive again' },
  },
  {
    name: 'a session lives for one moment longer than its ttl',
    edits: [{ file: space, find: 'session.expiresAt <= time.now', replace: 'session.expiresAt < time.now' }],
    foundBy: { file: unit, test: 'a dead session never beats itself alive again' },
  },
  {
    name: 'two claims of one microsecond have the same token',
    edits: [{ file: space, find: 'micros > this.#lastToken ? micros', replace: 'micros >= this.#lastToken ? micros' }],
    foundBy: byTheRule,
  },
  {
    name: 'a token is the clock’s alone, also when that was set back',
    edits: [{ file: space, find: 'micros > this.#lastToken ? micros : this.#lastToken + 1n', replace: 'micros' }],
    foundBy: byTheRule,
  },
  {
    name: 'a dead session’s waiting claims stay in line',
    edits: [
      {
        file: space,
        find: 'for (const claim of [...claims.values()]) this.#remove(claim);',
        replace: 'for (const claim of [...claims.values()]) if (claim.spot.held) this.#remove(claim);',
      },
    ],
    foundBy: byTheRule,
  },
  {
    name: 'who leaves wakes nobody',
    edits: [
      {
        file: space,
        find: 'this.#notify(entry.line.line.leave(entry.spot));',
        replace: 'entry.line.line.leave(entry.spot);',
      },
    ],
    foundBy: byTheRule,
  },
  {
    name: 'a claim of one that died in the same moment is granted on the way',
    edits: [
      {
        file: space,
        find: `    for (const { id } of dead) this.#sessions.delete(id);
    for (const { claims } of dead) for (const claim of [...claims.values()]) this.#remove(claim);`,
        replace: `    for (const { id, claims } of dead) {
      this.#sessions.delete(id);
      for (const claim of [...claims.values()]) this.#remove(claim);
    }`,
      },
    ],
    foundBy: { file: unit, test: 'a claim of one that died in the same moment as its holder is not granted' },
  },
  {
    name: 'a leave does not ask whose claim it is',
    edits: [
      {
        file: space,
        find: 'const claim = session?.claims.get(ref.id);',
        replace: 'const claim = [...this.#sessions.values()].map(({ claims }) => claims.get(ref.id)).find(Boolean);',
      },
    ],
    foundBy: { file: suite, test: 'a session can’t leave another’s claim, though it knows its id' },
  },
  {
    name: 'who only tries is refused by a holder that is dead',
    edits: [
      {
        file: space,
        find: `  enter(sessionId: string, claim: Claim, time: SpaceTime): Place {
    this.reap(time);`,
        replace: `  enter(sessionId: string, claim: Claim, time: SpaceTime): Place {`,
      },
    ],
    foundBy: byTheRule,
  },
  {
    name: 'an evicted claim leaves its line before its holder has heard of it',
    edits: [
      {
        file: space,
        find: '        item.evicted = reason;',
        replace: '        item.evicted = reason;\n        this.#remove(item);',
      },
    ],
    foundBy: { file: suite, test: 'an evicted claim keeps its place until its session, who is told, has left it' },
  },
  {
    name: 'a register does not remember its readers',
    edits: [{ file: space, find: 'else if (token > maxRead) register.maxRead = token;', replace: '' }],
    foundBy: { file: unit, test: 'a reader needs a token above every writer’s' },
  },
  {
    name: 'waiters do not hear of a holder’s death',
    edits: [
      {
        file: 'engines/memory/engine.ts',
        find: '      this.#space.reap(timeOf(this.#clock));\n      if',
        replace: '      if',
      },
    ],
    foundBy: { file: suite, test: 'a stopped holder’s lock goes to the next' },
  },
  {
    name: 'only the clock that came first reaps',
    edits: [
      {
        file: 'engines/memory/engine.ts',
        find: 'if (!this.#reapers.has(clock))',
        replace: 'if (this.#reapers.size === 0)',
      },
    ],
    foundBy: { file: suite, test: 'a stopped holder’s lock goes to the next' },
  },
  {
    name: 'a beat proves nothing',
    edits: [
      { file: 'engines/memory/protocol.ts', find: '    session.expiresAt = time.now + session.ttlMs;\n', replace: '' },
    ],
    foundBy: { file: suite, test: 'a living holder keeps its lock for longer than its ttl' },
  },
  {
    name: 'a register whose time is over stays until somebody asks for it',
    edits: [{ file: space, find: '    this.#forget(time);\n    if (time.now', replace: '    if (time.now' }],
    foundBy: { file: unit, test: 'goes though nobody asks for it again' },
  },
  {
    name: 'a register’s fence outlives its time',
    edits: [
      {
        file: space,
        find: 'let register = this.#found(name, time);',
        replace: 'let register = this.#registers.get(name);',
      },
    ],
    foundBy: { file: unit, test: 'is there until the last moment, and then neither its value nor its fence' },
  },
  {
    name: 'a reason of an eviction may be anything',
    edits: [{ file: 'holdfast.ts', find: "    checkText(reason, 'A reason', LONGEST_REASON_BYTES);\n", replace: '' }],
    foundBy: { file: suite, test: 'a reason is text of at most 1 KiB, told as it is' },
  },
];
