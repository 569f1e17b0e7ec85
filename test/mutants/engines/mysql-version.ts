import type { TestedBug } from '../test-run.js';

const ROWS = 'test/engines/mysql/rows.test.ts';
const SWEEPER = 'test/engines/mysql/sweeper.test.ts';
const FILE = 'engines/mysql/rows/protocol.ts';

export const mysqlVersion: readonly TestedBug[] = [
  {
    name: 'the version is not compared',
    edits: [
      {
        file: FILE,
        find: "WHERE namespace = ? AND name = ? AND token = ? AND (owner = '' OR until <= ${NOW})`",
        replace: "WHERE namespace = ? AND name = ? AND (owner = '' OR until <= ${NOW})`",
      },
    ],
    foundBy: { file: ROWS, test: 'version: a version that another has taken and freed since it was read' },
  },
  {
    name: 'the second of two who find no row believes that it has made it',
    edits: [
      {
        file: FILE,
        find: 'ON DUPLICATE KEY UPDATE token = token + LAST_INSERT_ID(0)`',
        replace: 'ON DUPLICATE KEY UPDATE token = LAST_INSERT_ID(token + 1)`',
      },
    ],
    foundBy: { file: ROWS, test: 'version: of two who find no row only one has made it' },
  },
  {
    name: 'a lock that has not run out is taken for free',
    edits: [
      { file: FILE, find: '  if (freeInMs > 0) return { freeInMs };\n', replace: '' },
      {
        file: FILE,
        find: "WHERE namespace = ? AND name = ? AND token = ? AND (owner = '' OR until <= ${NOW})`",
        replace: 'WHERE namespace = ? AND name = ? AND token = ?`',
      },
    ],
    foundBy: {
      file: 'test/conformance/mysql.test.ts',
      test: 'mysql:version: exclusion: a try is refused while another holds',
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
    foundBy: { file: SWEEPER, test: 'version a row that is held is not swept away with those that are idle' },
  },
  {
    name: 'the first version of a name does not begin above the floor',
    edits: [
      {
        file: 'engines/mysql/tables.ts',
        find: 'COALESCE((SELECT token FROM ${p}floor WHERE namespace = ?), 0) + 1)`',
        replace: 'COALESCE((SELECT 0 FROM ${p}floor WHERE namespace = ?), 0) + 1)`',
      },
    ],
    foundBy: { file: SWEEPER, test: 'version: tokens do not fall when their rows are swept away' },
  },
  {
    name: 'its statements are taken for calls that keep their order',
    edits: [{ file: FILE, find: 'unordered = true;', replace: 'unordered = false;' }],
    foundBy: {
      file: 'test/engines/mysql/locks.test.ts',
      test: 'version: what was given up is dropped after it was asked for, and not before',
    },
  },
  {
    name: 'a renewal is believed without a look at the row',
    edits: [
      {
        file: FILE,
        find: 'return slots.flatMap(({ id }) => (kept.has(id) ? [] : [id]));',
        replace: 'return slots.flatMap(({ id }) => (kept.has(id) ? [] : []));',
      },
    ],
    foundBy: { file: ROWS, test: 'version a lock that has run out is not renewed, and its holder is told' },
  },
];
