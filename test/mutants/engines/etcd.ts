import type { TestedBug } from '../test-run.js';

const LINES = 'test/engines/etcd/lines.test.ts';
const FAULTS = 'test/engines/etcd/faults.test.ts';

export const etcd: readonly TestedBug[] = [
  {
    name: 'a try of a reader or a permit does not ask whether anybody has entered since it looked',
    edits: [
      {
        file: 'engines/etcd/protocol.ts',
        find: 'await this.#txn([unchanged], [put(spot, value)], []);',
        replace: 'await this.#txn([], [put(spot, value)], []);',
      },
    ],
    foundBy: { file: LINES, test: 'who tries, and saw room that another has taken meanwhile, is refused' },
  },
  {
    name: 'many who try for permits at once do not see each other',
    edits: [
      {
        file: 'engines/etcd/protocol.ts',
        find: 'await this.#txn([unchanged], [put(spot, value)], []);',
        replace: 'await this.#txn([isAbsent(key)], [put(spot, value)], []);',
      },
    ],
    foundBy: {
      file: 'test/conformance/etcd.test.ts',
      test: 'of many that try for permits at once no more get them than there are',
    },
  },
  {
    name: 'a leave does not ask which entry it is of',
    edits: [
      {
        file: 'engines/etcd/protocol.ts',
        find: ': { target: TARGET.create, result: IS.equal, key: name, createRevision: revision };\n    const others',
        replace: ': { target: TARGET.create, result: IS.greater, key: name, createRevision: 0n };\n    const others',
      },
    ],
    foundBy: { file: LINES, test: 'a leave of an earlier entry does not take away the claim' },
  },
  {
    name: 'a leave that was carried out without an answer is called a loss',
    edits: [
      {
        file: 'engines/etcd/protocol.ts',
        find: `      await this.#client.txn(request, { ...this.#calling, withinMs: withinMs - soonMs, repeatable: true });
      return true;`,
        replace: `      const calling = { ...this.#calling, withinMs: withinMs - soonMs, repeatable: true };
      return (await this.#client.txn(request, calling)).succeeded;`,
      },
    ],
    foundBy: { file: FAULTS, test: 'to a leave is no loss' },
  },
  {
    name: 'who waits for one claim begins to watch one revision too late',
    edits: [
      {
        file: 'engines/etcd/protocol.ts',
        find: 'obstacle: { key: kv.key, from: at + 1n, deletionsOnly }',
        replace: 'obstacle: { key: kv.key, from: at + 2n, deletionsOnly }',
      },
    ],
    foundBy: { file: LINES, test: 'who comes to wait hears of a leave right after it came' },
  },
  {
    name: 'who waits for a permit begins to watch one revision too late',
    edits: [
      {
        file: 'engines/etcd/protocol.ts',
        find: 'return { key: from, rangeEnd: to, from: at + 1n, deletionsOnly: true };',
        replace: 'return { key: from, rangeEnd: to, from: at + 2n, deletionsOnly: true };',
      },
    ],
    foundBy: { file: LINES, test: 'who comes to wait hears of a leave right after it came' },
  },
  {
    name: 'everybody watches the first in line',
    edits: [
      {
        file: 'engines/etcd/protocol.ts',
        find: 'return isOf(prefix, before.key) ? behind(before, revision, at, true) : undefined;',
        replace: 'return undefined;',
      },
      {
        file: 'engines/etcd/protocol.ts',
        find: 'isExclusive(claim) ? before.at(-1) : before',
        replace: 'isExclusive(claim) ? before.at(0) : before',
      },
    ],
    foundBy: { file: FAULTS, test: 'of a few, each with a session of its own' },
  },
  {
    name: 'a keep-alive that found no lease counts as one that did',
    edits: [
      { file: 'engines/etcd/session.ts', find: '    if (kept.ttl <= 0n) return { alive: false };\n', replace: '' },
    ],
    foundBy: { file: LINES, test: 'of a lease that is gone says so' },
  },
  {
    name: 'a keep-alive of a leader that was replaced is believed',
    edits: [
      {
        file: 'engines/etcd/session.ts',
        find: 'if (kept.header?.raftTerm !== mail.header?.raftTerm)',
        replace: 'if (kept.header?.raftTerm === undefined)',
      },
    ],
    foundBy: { file: LINES, test: 'that a leader of an earlier term has answered counts for nothing' },
  },
  {
    name: 'nobody looks again when history was compacted',
    edits: [
      {
        file: 'engines/etcd/watches.ts',
        find: 'watches.watch(target, { changed, gap: changed });',
        replace: 'watches.watch(target, { changed, gap: () => {} });',
      },
    ],
    foundBy: { file: FAULTS, test: 'what was compacted while a waiter was cut off' },
  },
  {
    name: 'a watch begins at the present, whatever came before',
    edits: [{ file: 'engines/etcd/client/watches.ts', find: 'startRevision: from,', replace: 'startRevision: 0n,' }],
    foundBy: { file: LINES, test: 'who comes to wait hears of a leave right after it came' },
  },
  {
    name: 'the key of another program is taken for a reader',
    edits: [
      {
        file: 'engines/etcd/protocol.ts',
        find: 'written(value)?.weight) ?? ALL;',
        replace: 'written(value)?.weight) ?? 1;',
      },
    ],
    foundBy: {
      file: 'test/engines/etcd/etcdctl.test.ts',
      test: 'we wait while it holds, refuse to try, and hold when it is gone',
    },
  },
  {
    name: 'a semaphore is used with two capacities at once',
    edits: [
      {
        file: 'engines/etcd/protocol.ts',
        find: '[isAbsent(key), ...sameCapacity(spot)],',
        replace: '[isAbsent(key)],',
      },
    ],
    foundBy: {
      file: 'test/conformance/etcd.test.ts',
      test: 'another number of permits for a semaphore in use is a CapacityError',
    },
  },
  {
    name: 'what may not be repeated is sent to the next member too',
    edits: [
      {
        file: 'engines/etcd/client/client.ts',
        find: 'if (!repeatable || sent >= 2 * members || members === 1) return;',
        replace: 'if (sent >= 2 * members || members === 1) return;',
      },
    ],
    foundBy: {
      file: 'test/unit/engines/etcd/client/connection.test.ts',
      test: 'is not left with what may not be repeated',
    },
    sample: true,
  },
  {
    name: 'a register that is written for ever after all is forgotten',
    edits: [
      {
        file: 'engines/etcd/registers.ts',
        find: "kept === 'for ever' ? NONE :",
        replace: "kept === 'for ever' ? (seen?.lease ?? NONE) :",
      },
    ],
    foundBy: { file: 'test/conformance/etcd.test.ts', test: 'the last write says for how long a register is kept' },
  },
];
