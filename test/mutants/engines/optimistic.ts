import type { TestedBug } from '../test-run.js';

const file = 'test/system/optimistic/rows.test.ts';
const rows = 'optimistic/index.ts';
const column = 'optimistic/version-column.ts';

export const optimistic: readonly TestedBug[] = [
  {
    name: 'a row is written if its version is the same or newer',
    edits: [
      {
        file: column,
        find: 'isStill: `${v} = CAST(? AS ${integer})`',
        replace: 'isStill: `${v} >= CAST(? AS ${integer})`',
      },
    ],
    foundBy: { file, test: 'sqlite a row that others change each time is a ConflictError' },
    sample: true,
  },
  {
    name: 'a version is not moved on',
    edits: [{ file: column, find: 'next: `${v} + 1`', replace: 'next: v' }],
    foundBy: { file, test: 'sqlite 50 buyers of 20 items, by version' },
  },
  {
    name: 'what was written to no row counts as written',
    edits: [{ file: rows, find: 'values))).length > 0', replace: 'values))).length >= 0' }],
    foundBy: { file, test: 'sqlite a row that others change each time is a ConflictError' },
  },
  {
    name: 'MySQL: what was written to no row counts as written',
    edits: [
      {
        file: rows,
        find: '(await this.#port.change(this.#statement(update, values))) > 0',
        replace: '(await this.#port.change(this.#statement(update, values))) >= 0',
      },
    ],
    foundBy: { file, test: 'mysql a row that others change each time is a ConflictError' },
  },
  {
    name: 'a try after a conflict goes by what was read at first',
    edits: [
      {
        file: rows,
        find: '    checkUpdate(id, change, retries);\n',
        replace: '    checkUpdate(id, change, retries);\n    let first;\n',
      },
      {
        file: rows,
        find: 'const changes = await change({ ...read.row } as R);',
        replace: 'first ??= read.row;\n      const changes = await change({ ...first } as R);',
      },
    ],
    foundBy: { file, test: 'sqlite a try after a conflict goes by the row as it is by then' },
  },
  {
    name: 'PostgreSQL: a time of change is compared in milliseconds',
    edits: [{ file: column, find: 'HH24:MI:SS.US', replace: 'HH24:MI:SS.MS' }],
    foundBy: { file, test: 'postgres a change in the next microsecond is noticed' },
  },
  {
    name: 'PostgreSQL: a time of change is the clock’s alone',
    edits: [
      {
        file: column,
        find: "next: `greatest(CAST(clock_timestamp() AS ${type}), ${v} + interval '1 microsecond')`",
        replace: 'next: `CAST(clock_timestamp() AS ${type})`',
      },
    ],
    foundBy: { file, test: 'postgres a time of change that is ahead of the clock is moved on all the same' },
  },
  {
    name: 'PostgreSQL: a version is compared as a double',
    edits: [{ file: column, find: "counter(v, 'text', 'bigint')", replace: "counter(v, 'text', 'double precision')" }],
    foundBy: { file, test: 'postgres a version beyond 2^53 is compared in full' },
  },
  {
    name: 'a conflict is tried once less than it was asked for',
    edits: [{ file: rows, find: 'attempt <= retries', replace: 'attempt < retries' }],
    foundBy: { file, test: 'sqlite a row that others change each time is a ConflictError' },
  },
  {
    name: 'a signal that aborts between two tries is not heard',
    edits: [
      { file: rows, find: '      signal?.throwIfAborted();\n', replace: '' },
      { file: rows, find: '.catch(() => signal?.throwIfAborted())', replace: '.catch(() => {})' },
    ],
    foundBy: { file, test: 'sqlite an abort ends the tries with its own reason' },
  },
];
