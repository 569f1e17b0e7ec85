import type { TestedBug } from '../test-run.js';

const VERSIONS = 'test/engines/memcached/versions.test.ts';
const LOCKS = 'test/engines/memcached/locks.test.ts';

export const memcached: readonly TestedBug[] = [
  {
    name: 'a line without an end is kept for ever',
    edits: [
      {
        file: 'engines/memcached/client/replies.ts',
        find: "if (this.#rest.length > LONGEST_LINE) throw new Error('memcached sent a line without an end.');",
        replace: '',
      },
    ],
    foundBy: {
      file: 'test/unit/engines/memcached/client/replies.test.ts',
      test: 'a line without an end is an error before it takes up memory',
    },
  },
  {
    name: 'a renewal does not ask which version it renews',
    edits: [
      {
        file: 'engines/memcached/protocol.ts',
        find: '${claim.id.length} C${cas} T${this.#seconds} c`;',
        replace: '${claim.id.length} T${cas && this.#seconds} c`;',
      },
    ],
    foundBy: { file: VERSIONS, test: 'what memcached forgot, and another has since, is neither renewed nor freed' },
  },
  {
    name: 'a release does not ask which version it deletes',
    edits: [
      {
        file: 'engines/memcached/protocol.ts',
        find: 'connection.call(`${command} C${cas}`, { on: link }),',
        replace: 'connection.call(cas && command, { on: link }),',
      },
    ],
    foundBy: { file: LOCKS, test: 'what another stored over ours is not deleted by our release' },
  },
  {
    name: 'a lock that is there is taken for ours, whatever its value',
    edits: [
      {
        file: 'engines/memcached/protocol.ts',
        find: 'return found.value === claim.id ? { cas: versionIn(found), link } : undefined;',
        replace: 'return { cas: versionIn(found), link };',
      },
    ],
    foundBy: { file: VERSIONS, test: 'whoever held before a restart neither renews nor frees' },
  },
  {
    name: 'a version that was heard on another connection is believed',
    edits: [
      {
        file: 'engines/memcached/protocol.ts',
        find: 'return version?.link === this.#setup.connection.link ? version : undefined;',
        replace: 'return version && { ...version, link: this.#setup.connection.link };',
      },
    ],
    foundBy: { file: VERSIONS, test: 'whoever held before a restart neither renews nor frees' },
  },
  {
    name: 'a lock is taken whether it is free or not',
    edits: [
      {
        file: 'engines/memcached/protocol.ts',
        find: '${claim.id.length} ME T${this.#seconds} c`',
        replace: '${claim.id.length} T${this.#seconds} c`',
      },
    ],
    foundBy: { file: LOCKS, test: 'what somebody else added excludes us until it is gone' },
  },
  {
    name: 'a token is given without a proof that the lock was ours when it was made',
    edits: [
      {
        file: 'engines/memcached/protocol.ts',
        find: "if (proof.code === 'EN' || (proof.code === 'HD' && versionIn(proof) !== cas)) return undefined;",
        replace: "if (proof.code === 'EN') return undefined;",
      },
    ],
    foundBy: { file: VERSIONS, test: 'a lock that another has by the time that its token is made is not granted' },
  },
  {
    name: 'what a take without an answer has taken is nobody’s until it runs out',
    edits: [
      {
        file: 'engines/memcached/protocol.ts',
        find: '(wasUnsure ? await this.#find(claim) : undefined)',
        replace: 'undefined',
      },
    ],
    foundBy: { file: VERSIONS, test: 'a take whose reply was lost is found by the next' },
  },
  {
    name: 'a lock is kept without the second that may be nearly over',
    edits: [
      {
        file: 'engines/memcached/protocol.ts',
        find: 'Math.ceil(setup.ttlMs / 1_000) + 1;',
        replace: 'Math.ceil(setup.ttlMs / 1_000);',
      },
    ],
    foundBy: { file: LOCKS, test: 'memcached keeps a lock for its ttl and up to two seconds more' },
  },
  {
    name: 'a counter that was forgotten begins at one again',
    edits: [
      {
        file: 'engines/memcached/protocol.ts',
        find: 'J${startUs} v`',
        replace: 'J${startUs && 1} v`',
      },
    ],
    foundBy: { file: 'test/engines/memcached/faults.test.ts', test: 'went with its counter' },
  },
  {
    name: 'a counter of any value is believed',
    edits: [
      {
        file: 'engines/memcached/protocol.ts',
        find: 'if (token === undefined || token < LEAST_TOKEN || token > LARGEST_TOKEN)\n',
        replace: 'if (token === undefined || (token < LEAST_TOKEN && token > LARGEST_TOKEN))\n',
      },
      {
        file: 'engines/memcached/protocol.ts',
        find: "    if (token <= this.#newest) throw this.#overwritten('less than it did');\n",
        replace: '',
      },
    ],
    foundBy: {
      file: 'test/engines/memcached/strangers.test.ts',
      test: 'is an EngineError that names it, and no token: 0',
    },
  },
  {
    name: 'two names of two namespaces become one key',
    edits: [
      {
        file: 'engines/memcached/keys.ts',
        find: 'return `${encode(namespace, /[^\\w.-]/g)}:${encode(name',
        replace: 'return `${encode(namespace, /[^\\w.:-]/g)}:${encode(name',
      },
    ],
    foundBy: { file: 'test/unit/engines/memcached/keys.test.ts', test: 'is not that of' },
    sample: true,
  },
  {
    name: 'after an error the next answers are taken for those of the calls that follow',
    edits: [
      {
        file: 'engines/memcached/client/connection.ts',
        find: "throw call.refused ?? new EngineError('memcached: the connection was given up after an error.');",
        replace: 'if (call.refused) throw call.refused;',
      },
    ],
    foundBy: {
      file: 'test/unit/engines/memcached/client/connection.test.ts',
      test: 'of one call leaves the others on its connection unknown',
    },
  },
];
