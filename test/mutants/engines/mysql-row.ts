import type { TestedBug } from '../test-run.js';

const ROWS = 'test/engines/mysql/rows.test.ts';
const SWEEPER = 'test/engines/mysql/sweeper.test.ts';
const SETTINGS = 'test/engines/mysql/settings.test.ts';
const FILE = 'engines/mysql/rows/protocol.ts';

export const mysqlRow: readonly TestedBug[] = [
  {
    name: 'a statement relies on the order of its assignments',
    edits: [
      {
        file: FILE,
        find: 'until = IF(${isFree} OR owner = ?, ${NOW} + ?, until)',
        replace: 'until = IF(owner = ?, ${NOW} + ?, until)',
      },
    ],
    foundBy: { file: ROWS, test: 'a lock is taken over for a whole ttl, whatever order assignments are made in' },
  },
  {
    name: 'a session that does not commit by itself is taken as it is',
    edits: [
      {
        file: 'engines/mysql/client/settings.ts',
        find: "{ names: ['autocommit'], ours: '1', isFine: (value) => value === '1' }",
        replace: "{ names: ['autocommit'], ours: '1', isFine: () => true }",
      },
      {
        file: 'engines/mysql/client/database.ts',
        find: 'if (!isCommitted(result)) {',
        replace: 'if (!isCommitted(result) && !lent) {',
      },
    ],
    foundBy: { file: SETTINGS, test: 'autocommit = 0' },
  },
  {
    name: 'what a user who shares the pool has left uncommitted stays so',
    edits: [
      {
        file: 'engines/mysql/client/database.ts',
        find: 'if (!isCommitted(result)) {',
        replace: 'if (!isCommitted(result) && !lent) {',
      },
    ],
    foundBy: { file: SETTINGS, test: 'row: settings that change while the pool is in use are noticed, and kept' },
  },
  {
    name: 'a user’s pool gets the settings of the server back, not its own',
    edits: [
      {
        file: 'engines/mysql/client/connections.ts',
        find: 'this.#theirs = differing(rest, wanted);',
        replace: 'this.#theirs = {};',
      },
    ],
    foundBy: { file: SETTINGS, test: 'row: a pool of the user’s has its settings back as they were' },
    sample: true,
  },
  {
    name: 'a server that became read-only is not left',
    edits: [
      {
        file: 'engines/mysql/client/connections.ts',
        find: '    if (isReadOnly(error)) this.tenure.endOf(this.connection);\n',
        replace: '    void isReadOnly;\n',
      },
    ],
    foundBy: {
      file: 'test/engines/mysql/switch-over.test.ts',
      test: 'row: the successor is found within a ttl, and nobody stays behind',
    },
  },
  {
    name: 'any certificate of a trusted authority is good for any server',
    edits: [{ file: 'engines/mysql/pool.ts', find: 'verifyIdentity: true', replace: 'verifyIdentity: false' }],
    foundBy: {
      file: 'test/engines/mysql/tls.test.ts',
      test: 'a certificate for another name is refused, by name',
    },
  },
  {
    name: 'the sweeper deletes rows that are held',
    edits: [
      {
        file: 'engines/mysql/rows/sweeper.ts',
        find: 'const isIdle = `until < ${NOW} - ${IDLE_US} AND token <= ?`;',
        replace: 'const isIdle = `token <= ?`;',
      },
    ],
    foundBy: { file: SWEEPER, test: 'row a row that is held is not swept away with those that are idle' },
  },
  {
    name: 'the sweeper does not remember the tokens that it deletes',
    edits: [
      {
        file: 'engines/mysql/rows/sweeper.ts',
        find: 'ON DUPLICATE KEY UPDATE token = GREATEST(token, ?)`,\n          [namespace, highest, highest],',
        replace: 'ON DUPLICATE KEY UPDATE token = token`,\n          [namespace, 0n],',
      },
    ],
    foundBy: { file: SWEEPER, test: 'row: tokens do not fall when their rows are swept away' },
  },
  {
    name: 'a release does not ask whose lock it is',
    edits: [
      {
        file: FILE,
        find: 'WHERE namespace = ? AND name = ? AND owner = ?`',
        replace: 'WHERE namespace = ? AND name = ?`',
      },
    ],
    foundBy: { file: ROWS, test: 'row a release frees nothing that another has taken over' },
  },
  {
    name: 'a renewal revives a lock that has run out',
    edits: [
      {
        file: FILE,
        find: 'SET until = ${NOW} + ? WHERE ${ours} AND until > ${NOW}`',
        replace: 'SET until = ${NOW} + ? WHERE ${ours}`',
      },
    ],
    foundBy: { file: ROWS, test: 'row a lock that has run out is not renewed, and its holder is told' },
  },
  {
    name: 'a lock that has not run out is taken for free',
    edits: [
      {
        file: FILE,
        find: "const isFree = `(owner = '' OR until <= ${NOW})`;",
        replace: "const isFree = `(owner = '' OR until >= ${NOW})`;",
      },
    ],
    foundBy: {
      file: 'test/conformance/mysql.test.ts',
      test: 'mysql:row: exclusion: a try is refused while another holds',
    },
  },
  {
    name: 'a token is the clock’s alone, whatever the row has had',
    edits: [{ file: FILE, find: 'LAST_INSERT_ID(GREATEST(token + 1, ${NOW}))', replace: 'LAST_INSERT_ID(${NOW})' }],
    foundBy: { file: ROWS, test: 'row a row that is there is given a token above its own, whatever the clock says' },
  },
  {
    name: 'a drop overtakes the take that it takes back',
    edits: [{ file: 'kit/slot-calls.ts', find: 'taking ? taking.then(drop, drop) : drop()', replace: 'drop()' }],
    foundBy: {
      file: 'test/engines/mysql/locks.test.ts',
      test: 'row: what was given up is dropped after it was asked for, and not before',
    },
  },
  {
    name: 'the sweeper leaves registers whose time is over',
    edits: [
      { file: 'engines/mysql/rows/sweeper.ts', find: '      await this.#setup.registers.forget();\n', replace: '' },
    ],
    foundBy: { file: SWEEPER, test: 'row: when rows are swept away' },
  },
];
