import type { TestedBug } from '../test-run.js';

const CONFORMANCE = 'test/conformance/postgres.test.ts';
const ADVISORY = 'test/engines/postgres/advisory.test.ts';
const ROUTINES = 'engines/postgres/advisory/protocol.ts';

export const postgresAdvisory: readonly TestedBug[] = [
  {
    name: 'a lock whose token could not be minted stays on its connection',
    edits: [
      {
        file: 'engines/postgres/advisory/store.ts',
        find: '      if (!link.over) {\n        this.#held.set',
        replace: '      if (link.over) {\n        this.#held.set',
      },
    ],
    foundBy: { file: ADVISORY, test: 'a lock whose token could not be minted is held by nobody' },
  },
  {
    name: 'a reader that was refused frees the key that another reader has',
    edits: [
      {
        file: 'engines/postgres/advisory/store.ts',
        find: 'await (held ? this.#mint(link, line) : this.#lock(link, line, shared))',
        replace: 'await this.#lock(link, line, shared)',
      },
    ],
    foundBy: { file: ADVISORY, test: 'a refused statement of a second reader takes nothing from the first' },
  },
  {
    name: 'a key is forgotten before the server has said that it is free',
    edits: [
      {
        file: 'engines/postgres/advisory/store.ts',
        find: '    const held = this.#held.get(key)!;\n',
        replace: '    const held = this.#held.get(key)!;\n    this.#held.delete(key);\n',
      },
    ],
    foundBy: {
      file: ADVISORY,
      test: 'a refused statement of a release is asked again, though the connection has other locks',
    },
  },
  {
    name: 'what is held on a server that takes no writes any more counts as held',
    edits: [
      {
        file: 'engines/postgres/client/link.ts',
        find: "    if (isReadOnly !== 'off') this.#end(new Error('the server has become read-only'));\n",
        replace: '    if (!row) return;\n',
      },
    ],
    foundBy: {
      file: 'test/engines/postgres/switch.test.ts',
      test: 'advisory what is held on the old server is told as lost, and the successor is found',
    },
  },
  {
    name: 'session locks that do not exclude are taken for good',
    edits: [
      {
        file: 'engines/postgres/advisory/engine.ts',
        find: '      await proveSessionLocks(database);\n',
        replace: '      void proveSessionLocks;\n',
      },
    ],
    foundBy: {
      file: 'test/engines/postgres/exclusion.test.ts',
      test: 'locks that are stubs, as those of CockroachDB advisory is refused',
    },
  },
  {
    name: 'a downgrade frees the writer before there is a reader',
    edits: [
      {
        file: ROUTINES,
        find: '  PERFORM pg_advisory_lock_shared(a_key);\n  PERFORM pg_advisory_unlock(a_key);',
        replace: '  PERFORM pg_advisory_unlock(a_key);\n  PERFORM pg_advisory_lock_shared(a_key);',
      },
    ],
    foundBy: { file: ADVISORY, test: 'a downgrade lets nobody in who waits for the writer inside the server' },
  },
  {
    name: 'the end of a connection is not told to those whose locks were on it',
    edits: [
      {
        file: 'engines/postgres/advisory/store.ts',
        find: "    for (const id of lost) this.#setup.lost(id, { reason: 'connection', detail });\n",
        replace: '',
      },
    ],
    foundBy: {
      file: 'test/engines/postgres/faults.test.ts',
      test: 'advisory the end of its connection is told at once, and the next is let in',
    },
  },
  {
    name: 'every lock is shared',
    edits: [
      {
        file: 'engines/postgres/advisory/store.ts',
        find: 'const shared = weight < ALL;',
        replace: 'const shared = weight <= ALL;',
      },
    ],
    foundBy: { file: CONFORMANCE, test: 'postgres-advisory: exclusion: a try is refused while another holds' },
  },
  {
    name: 'a reader’s lock is freed as if it were a writer’s',
    edits: [
      {
        file: ROUTINES,
        find: 'CASE WHEN a_shared THEN pg_advisory_unlock_shared(a_key) ELSE pg_advisory_unlock(a_key) END',
        replace: 'pg_advisory_unlock(a_key)',
      },
    ],
    foundBy: {
      file: CONFORMANCE,
      test: 'postgres-advisory: read-write: a writer excludes readers and writers, and a reader excludes writers',
    },
  },
  {
    name: 'a new line’s token does not begin above the floor',
    edits: [
      {
        file: ROUTINES,
        find: 'greatest((SELECT token + 1 FROM @floor WHERE namespace = a_namespace), micros)',
        replace: 'micros',
      },
    ],
    foundBy: {
      file: 'test/engines/postgres/cleaning.test.ts',
      test: 'advisory: tokens never fall, neither by cleaning nor by a clock that was set back',
    },
  },
  {
    name: 'a pooler between us and the server is not noticed',
    edits: [
      {
        file: 'engines/postgres/client/link.ts',
        find: 'if (Number(pid) !== this.#client.processID) {',
        replace: 'if (row === undefined) {',
      },
    ],
    foundBy: { file: 'test/engines/postgres/pooler.test.ts', test: 'advisory: is refused' },
  },
];
