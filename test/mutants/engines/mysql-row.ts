import type { TestedBug } from '../test-run.js';

const ROWS = 'test/engines/mysql/rows.test.ts';
const SWEEPER = 'test/engines/mysql/sweeper.test.ts';
const FILE = 'engines/mysql/rows/protocol.ts';

export const mysqlRow: readonly TestedBug[] = [
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
    sample: true,
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
    name: 'the sweeper leaves registers whose time is over',
    edits: [
      { file: 'engines/mysql/rows/sweeper.ts', find: '      await this.#setup.registers.forget();\n', replace: '' },
    ],
    foundBy: { file: SWEEPER, test: 'row: when rows are swept away' },
  },
];
