import type { Names } from './names.js';

/**
 * One row for each resource of the user's that is fenced (`holdfast/fence`); no strategy uses it. A fence that is opened
 * before the first migration makes it by itself, so it may be there already.
 */
export function fenceTable(names: Names): string {
  return `CREATE TABLE IF NOT EXISTS ${names.of('fence')} (
  name        text COLLATE "C" PRIMARY KEY,
  max_read    bigint NOT NULL,         -- the highest token that a reader has shown
  max_write   bigint NOT NULL          -- and a writer
) WITH (fillfactor = 50)`;
}
