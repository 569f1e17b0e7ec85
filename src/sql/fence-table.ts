/**
 * One row for each resource of the user's that is fenced (`holdfast/fence`); no strategy of an engine uses it. `holdfast schema`
 * makes it with the engine's tables. A fence that is opened before the first migration makes it by itself, so it may be there
 * already.
 */
import type { Names } from './postgres-names.js';

export function postgresFenceTable(names: Names): string {
  return `CREATE TABLE IF NOT EXISTS ${names.of('fence')} (
  name        text COLLATE "C" PRIMARY KEY,
  max_read    bigint NOT NULL,         -- the highest token that a reader has shown
  max_write   bigint NOT NULL          -- and a writer
) WITH (fillfactor = 50)`;
}

/**
 * Names are bytes: a collated column takes `job`, `JOB` and `job ` for one. `opened` counts: a row that is set to what it was is
 * no write to MySQL, and where there are several primaries only writes are certified against each other.
 */
export function mysqlFenceTable(prefix: string): string {
  return `CREATE TABLE IF NOT EXISTS ${prefix}fence (
  name       VARBINARY(1024) NOT NULL PRIMARY KEY,
  max_read   BIGINT NOT NULL,
  max_write  BIGINT NOT NULL,
  opened     BIGINT NOT NULL DEFAULT 0
) ENGINE = InnoDB`;
}

/** To a table of before there was one. */
export function mysqlFenceOpened(prefix: string): string {
  return `ALTER TABLE ${prefix}fence ADD COLUMN opened BIGINT NOT NULL DEFAULT 0`;
}
