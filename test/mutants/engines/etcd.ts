import type { TestedBug } from '../test-run.js';

const LINES = 'test/engines/etcd/lines.test.ts';
const SESSION = 'test/unit/kit/ephemeral-session.test.ts';
const FAULTS = 'test/engines/etcd/faults.test.ts';
const STRANGERS = 'test/engines/etcd/strangers.test.ts';
const HOSTILE = 'test/engines/etcd/hostile.test.ts';

export const etcd: readonly TestedBug[] = [
  {
    name: 'a try of a reader or a permit does not ask whether anybody has entered since it looked',
    edits: [
      {
        file: 'engines/etcd/protocol.ts',
        find: 'await this.#txn([unchanged], [put(spot)], []);',
        replace: 'await this.#txn([], [put(spot)], []);',
      },
    ],
    foundBy: { file: LINES, test: 'who tries, and saw room that another has taken meanwhile, is refused' },
  },
  {
    name: 'many who try for permits at once do not see each other',
    edits: [
      {
        file: 'engines/etcd/protocol.ts',
        find: 'await this.#txn([unchanged], [put(spot)], []);',
        replace: 'await this.#txn([isAbsent(key)], [put(spot)], []);',
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
        find: 'return standsIn(spot, before) ? behind(before, footing, at, true) : undefined;',
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
    edits: [{ file: 'engines/etcd/session.ts', find: '    if (kept.ttl <= 0n) return undefined;\n', replace: '' }],
    foundBy: { file: LINES, test: 'of a lease that is gone says so' },
  },
  {
    name: 'a keep-alive of a leader that was replaced is believed',
    edits: [
      {
        file: 'engines/etcd/session.ts',
        find: 'if (kept.header.raftTerm !== mail.header.raftTerm)',
        replace: 'if (kept.header.raftTerm === undefined)',
      },
    ],
    foundBy: { file: LINES, test: 'that a leader of an earlier term has answered counts for nothing' },
  },
  {
    name: 'nobody looks again when history was compacted',
    edits: [
      {
        file: 'engines/etcd/session.ts',
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
        find: '[isAbsent(key), ...alone],',
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
  {
    name: 'a message has as many parts as it likes',
    edits: [
      {
        file: 'engines/etcd/client/wire.ts',
        find: 'if (this.#items < 0 || this.#fields < 0) throw',
        replace: 'if (this.#items < 0 && this.#fields > 0 && isItem && this.#fields < 0) throw',
      },
    ],
    foundBy: {
      file: 'test/unit/engines/etcd/client/wire.test.ts',
      test: 'a message of many small parts is refused before they fill the memory',
    },
  },
  {
    name: 'an answer may be as long as any other, whatever was asked for',
    edits: [
      {
        file: 'engines/etcd/client/frames.ts',
        find: "if (length > longest) throw new TooMuchError('a message is too long');",
        replace: "if (length < 0 && length > longest) throw new TooMuchError('a message is too long');",
      },
    ],
    foundBy: { file: HOSTILE, test: 'to each question of a beat costs the lock, and no more (64' },
  },
  {
    name: 'whoever had no token when users were switched on never asks for one',
    edits: [
      {
        file: 'engines/etcd/client/status.ts',
        find: "['revision of auth store is old', 'user name is empty']",
        replace: "['revision of auth store is old']",
      },
    ],
    foundBy: { file: STRANGERS, test: 'cost nobody a lock, neither who holds nor who waits' },
  },
  {
    name: 'a session lives as long as a server says',
    edits: [
      {
        file: 'engines/etcd/session.ts',
        find: 'const ttlMs = Math.min(askedMs, Number(ttl) * 1_000);',
        replace: 'const ttlMs = Number(ttl) * 1_000;',
      },
    ],
    foundBy: { file: HOSTILE, test: 'that is longer than was asked for is kept as if it were not' },
  },
  {
    name: 'a lease of any length is believed',
    edits: [
      {
        file: 'engines/etcd/client/client.ts',
        find: 'if (granted.id <= 0n || granted.ttl <= 0n || granted.ttl > LONGEST_LEASE)',
        replace: 'if (granted.id <= 0n && granted.ttl > LONGEST_LEASE)',
      },
    ],
    foundBy: { file: HOSTILE, test: 'seconds is an EngineError' },
  },
  {
    name: 'whatever lies among the claims of a lock is one',
    edits: [
      {
        file: 'engines/etcd/protocol.ts',
        find: 'return claimIdIn(suffix) !== undefined || (!isSemaphore(claim) && isLeaseAlone(suffix, kv.lease));',
        replace:
          'return isSemaphore(claim) ? claimIdIn(suffix) !== undefined : !suffix.includes(`/${isLeaseAlone(suffix, kv.lease)}`);',
      },
    ],
    foundBy: { file: STRANGERS, test: 'of a mutex are passed over by those who wait, try, list and evict' },
  },
  {
    name: 'whatever lies beside the claims of a semaphore is a claim of another capacity',
    edits: [
      {
        file: 'engines/etcd/keys.ts',
        find: 'return capacity <= ALL && claimIdIn(suffix) !== undefined ? capacity : undefined;',
        replace: "return digits === undefined || suffix === '' ? Number.NaN : capacity + 0 * ALL;",
      },
    ],
    foundBy: { file: STRANGERS, test: 'of a semaphore are passed over too, whatever capacity they seem to have' },
  },
  {
    name: 'a letter that nobody could have written ends every beat',
    edits: [
      {
        file: 'engines/etcd/session.ts',
        find: 'this.#mail(LETTERS_AT_ONCE, MOST.letters).catch((error: unknown) => this.#fewer(error)),',
        replace:
          'this.#mail(LETTERS_AT_ONCE, MOST.letters).then((mail) => (mail.kvs.map(({ key }) => decodeURIComponent(text(key))), mail)),',
      },
    ],
    foundBy: { file: STRANGERS, test: 'in the inbox of a session cost it nothing, and are removed' },
  },
  {
    name: 'two enters of one claim at once make two entries',
    edits: [{ file: 'kit/ephemeral-session.ts', find: 'entry.entering ??= this', replace: 'entry.entering = this' }],
    foundBy: { file: SESSION, test: 'that is repeated while the first has no answer yet asks once' },
  },
  {
    name: 'a leave overtakes the enter that it takes back',
    edits: [{ file: 'kit/ephemeral-session.ts', find: '    await entry.entering?.catch(() => {});\n', replace: '' }],
    foundBy: { file: SESSION, test: 'is answered before its leave is sent' },
  },
  {
    name: 'a look that is older than its grant takes it back',
    edits: [
      {
        file: 'kit/ephemeral-session.ts',
        find: "if (entered.state === 'held' || entry.state === 'held') {",
        replace: "if (entered.state === 'held') {",
      },
    ],
    foundBy: { file: SESSION, test: 'of one that was granted meanwhile says so' },
  },
  {
    name: 'one that a listing lacks counts as lost',
    edits: [{ file: 'kit/ephemeral-session.ts', find: '...(await this.#unlisted(found))', replace: '' }],
    foundBy: { file: SESSION, test: 'does not take one for lost that a listing lacks and that is there' },
  },
];
