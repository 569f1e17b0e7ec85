import type { TestedBug } from '../test-run.js';

const LINES = 'test/engines/zookeeper/lines.test.ts';
const FAULTS = 'test/engines/zookeeper/faults.test.ts';
const SESSION = 'test/unit/kit/ephemeral-session.test.ts';

export const zookeeper: readonly TestedBug[] = [
  {
    name: 'after a lost answer the line is not looked through, and a second node is made',
    edits: [
      {
        file: 'engines/zookeeper/protocol.ts',
        find: 'const made = doubtful ? await this.find(spot) : undefined;',
        replace: 'const made = undefined as Made | undefined;',
      },
    ],
    foundBy: { file: FAULTS, test: 'to the create leaves no orphan and makes no second node' },
  },
  {
    name: 'whose node it is is not asked before it is granted',
    edits: [
      {
        file: 'engines/zookeeper/protocol.ts',
        find: "    if (stat?.ephemeralOwner !== this.#client.sessionId) return { state: 'absent' };\n",
        replace: '',
      },
    ],
    foundBy: { file: FAULTS, test: 'a node that has our name and is another session’s is not granted' },
  },
  {
    name: 'everybody watches the first in line',
    edits: [
      {
        file: 'engines/zookeeper/protocol.ts',
        find: 'if (!nearest || byNumber(other, nearest) > 0) nearest = other;',
        replace: 'if (!nearest || byNumber(other, nearest) < 0) nearest = other;',
      },
    ],
    foundBy: { file: FAULTS, test: 'of a few, each with a session of its own' },
  },
  {
    name: 'a try that was overtaken holds all the same',
    edits: [
      {
        file: 'engines/zookeeper/protocol.ts',
        find: "      return { state: 'refused' };\n    }\n    // It was there",
        replace: "      return { state: 'held', footing };\n    }\n    // It was there",
      },
    ],
    foundBy: { file: LINES, test: 'who tries, and saw room that another has taken meanwhile, is refused' },
  },
  {
    name: 'a try that was overtaken leaves its node in the line',
    edits: [
      {
        file: 'engines/zookeeper/protocol.ts',
        find: `      await this.#client.delete(footing.path).catch(unlessGone);
      return { state: 'refused' };`,
        replace: "      return { state: 'refused' };",
      },
    ],
    foundBy: { file: LINES, test: 'who tries, and saw room that another has taken meanwhile, is refused' },
  },
  {
    name: 'a writer does not wait for readers',
    edits: [
      {
        file: 'engines/zookeeper/protocol.ts',
        find: '(reads && other.weight < other.capacity)',
        replace: 'other.weight < other.capacity',
      },
    ],
    foundBy: { file: LINES, test: 'a writer beside a reader' },
  },
  {
    name: 'a token is the number of its node, which begins anew',
    edits: [
      {
        file: 'engines/zookeeper/protocol.ts',
        find: 'return { path, token: czxid, since: Number(ctime) };',
        replace: 'return { path, token: czxid && BigInt(path.slice(-10)), since: Number(ctime) };',
      },
    ],
    foundBy: { file: FAULTS, test: 'the node of a line goes when it is empty' },
  },
  {
    name: 'a leave that was carried out without an answer is called a loss',
    edits: [{ file: 'engines/zookeeper/protocol.ts', find: 'return attempt > 0;', replace: 'return attempt < 0;' }],
    foundBy: { file: FAULTS, test: 'to a leave is no loss' },
  },
  {
    name: 'who writes into a mailbox overwrites what another has written meanwhile',
    edits: [
      {
        file: 'engines/zookeeper/mailbox.ts',
        find: 'data: letters, version: stat.version }',
        replace: 'data: letters }',
      },
    ],
    foundBy: { file: LINES, test: 'two who write into one mailbox at once' },
  },
  {
    name: 'a beat does not ask the leader',
    edits: [
      {
        file: 'engines/zookeeper/session.ts',
        find: 'Promise.all([this.#client.sync(), this.#client.getEphemerals(), mailbox.read()])',
        replace: 'Promise.all([undefined, this.#client.getEphemerals(), mailbox.read()])',
      },
    ],
    foundBy: {
      file: 'test/engines/zookeeper/link.test.ts',
      test: 'whoever goes by pings believes to hold what another holds',
    },
  },
  {
    name: 'an answer proves that the leader knows of it already',
    edits: [
      {
        file: 'engines/zookeeper/proof.ts',
        find: 'heardAt + timeoutMs / GAP_SHARE <= askedAt',
        replace: 'heardAt <= askedAt && timeoutMs > 0',
      },
    ],
    foundBy: {
      file: 'test/unit/engines/zookeeper/proof.test.ts',
      test: 'one that follows too soon after another proves no more than that one did',
    },
  },
  {
    name: 'a line that others have used meanwhile counts as empty',
    edits: [
      {
        file: 'engines/zookeeper/empty-lines.ts',
        find: 'if (!left || numberOf(path) !== ((left.number + 1) | 0)) return false;',
        replace: 'if (!left || numberOf(path) === undefined) return false;',
      },
    ],
    foundBy: { file: 'test/unit/engines/zookeeper/empty-lines.test.ts', test: 'the very next number is alone' },
    sample: true,
  },
  {
    name: 'a line that was removed and filled again counts as empty',
    edits: [
      {
        file: 'engines/zookeeper/empty-lines.ts',
        find: 'return between >= 0n && between <= BigInt(left.number >>> 0);',
        replace: 'return between >= 0n;',
      },
    ],
    foundBy: {
      file: 'test/unit/engines/zookeeper/empty-lines.test.ts',
      test: 'where the line may have been removed and filled again meanwhile',
    },
  },
  {
    name: 'a session that the servers do not know counts as one that they have',
    edits: [
      {
        file: 'engines/zookeeper/client/attachment.ts',
        find: '    if (timeoutMs === 0 || sessionId === 0n) return this.#expired();\n',
        replace: '',
      },
    ],
    foundBy: {
      file: 'test/unit/engines/zookeeper/client/connection.test.ts',
      test: 'a session that the servers do not know is expired',
    },
  },
  {
    name: 'a downgrade whose answer was lost is found only when the numbers differ',
    edits: [
      { file: 'kit/ephemeral-session.ts', find: 'if (footing) entry.footing = footing;', replace: 'void footing;' },
    ],
    foundBy: { file: SESSION, test: 'finds one under its other name, so that its leave takes that away' },
  },
  {
    name: 'a second node of a claim stays',
    edits: [
      {
        file: 'kit/ephemeral-session.ts',
        find: 'else this.#port.discard(name);',
        replace: 'else recognized.add(entry);',
      },
    ],
    foundBy: { file: SESSION, test: 'takes a second entry of the same claim away' },
  },
  {
    name: 'a session’s own node that is there and not there is made without end',
    edits: [
      {
        file: 'engines/zookeeper/mailbox.ts',
        find: 'for (let makes = 0; makes < MAKES; makes += 1) {',
        replace: 'for (let makes = 0; makes < MAKES; makes += 0) {',
      },
    ],
    foundBy: {
      file: 'test/engines/zookeeper/hostile.test.ts',
      test: 'about a node that is there and not there is an EngineError',
    },
  },
  {
    name: 'a list has as many entries as a server likes',
    edits: [
      {
        file: 'engines/zookeeper/client/jute.ts',
        find: 'if (count > MOST_ITEMS) throw',
        replace: 'if (count > 2 ** 31 + MOST_ITEMS) throw',
      },
    ],
    foundBy: {
      file: 'test/unit/engines/zookeeper/client/wire.test.ts',
      test: 'a list that is longer than any line is refused',
    },
  },
  {
    name: 'permits that no semaphore could give count as claims',
    edits: [
      {
        file: 'engines/zookeeper/keys.ts',
        find: 'return weight > 0 && weight <= capacity && capacity <= ALL;',
        replace: 'return weight >= 0 && capacity >= 0 && ALL > 0;',
      },
    ],
    foundBy: { file: 'test/engines/zookeeper/strangers.test.ts', test: 'of a semaphore are passed over too' },
  },
  {
    name: 'a session goes on though its servers will end it sooner than it was told',
    edits: [
      {
        file: 'engines/zookeeper/client/attachment.ts',
        find: '    if (sessionId === this.#sessionId && timeoutMs < this.#timeoutMs) return this.#shortened(connection);\n',
        replace: '',
      },
    ],
    foundBy: {
      file: 'test/engines/zookeeper/faults.test.ts',
      test: 'whoever counted on the longer one is told before anybody else is granted',
    },
  },
];
