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
    edits: [
      {
        file: column,
        find: "counter(v, 'text', 'bigint', bytes)",
        replace: "counter(v, 'text', 'double precision', bytes)",
      },
    ],
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
      { file: rows, find: 'await sleep(ms, signal);', replace: 'await sleep(ms);' },
    ],
    foundBy: { file, test: 'sqlite an abort ends the tries with its own reason' },
  },
  {
    name: 'a column that is spelled otherwise is another one',
    edits: [{ file: rows, find: "dialect === 'postgres' ? name : name.toLowerCase()", replace: 'name' }],
    foundBy: { file, test: 'mysql columns are compared as the database compares them' },
  },
  {
    name: 'an id that several rows have writes the first of them',
    edits: [{ file: rows, find: '    if (another)\n', replace: '    if (!found)\n' }],
    foundBy: { file, test: 'sqlite an id that is not unique is refused, and nothing is written' },
  },
  {
    name: 'a row of the same id that came after the read is written, too',
    edits: [{ file: rows, find: ' AS found) = 1`', replace: ' AS found) > 0`' }],
    foundBy: { file, test: 'postgres an id that is not unique is refused, and nothing is written' },
  },
  {
    name: 'a version that can’t grow is moved on to itself',
    edits: [{ file: rows, find: '    if (version === last)\n', replace: '    if (version === undefined)\n' }],
    foundBy: { file, test: 'mysql a version that can’t grow any more is refused' },
  },
  {
    name: 'what the database refuses because of others is the user’s affair',
    edits: [
      { file: rows, find: 'const isAlone = this.#port.isPool ||', replace: 'const isAlone = !this.#port.isPool &&' },
    ],
    foundBy: { file, test: 'postgres what the database refuses because of others is tried again' },
  },
];
