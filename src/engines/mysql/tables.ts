/**
 * The tables that all strategies share. Names, namespaces and ids are bytes: a collated column takes `job`, `JOB` and
 * `job ` for one. Times are µs since 1970 by the server's clock; BIGINTs, because a DATETIME knows time zones.
 *
 *     register   one row each: the value, who wrote it, and the fence: the highest token that a reader and a writer has
 *                shown. It lives until somebody deletes it
 *     floor      for each namespace a token that none of its lines may fall below: lines that nobody uses are deleted,
 *                and this remembers the highest of theirs
 */

/** Fixed when its statement begins: take it after a statement that waited. The session's time zone does not matter. */
export const NOW = `TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))`;

export function sharedTables(p: string): readonly string[] {
  return [
    `CREATE TABLE IF NOT EXISTS ${p}register (
  namespace  VARBINARY(512) NOT NULL,
  name       VARBINARY(1024) NOT NULL,
  value      LONGBLOB,
  token      BIGINT NOT NULL,
  written    BIGINT NOT NULL,
  max_read   BIGINT NOT NULL,
  max_write  BIGINT NOT NULL,
  PRIMARY KEY (namespace, name)
) ENGINE = InnoDB`,
    `CREATE TABLE IF NOT EXISTS ${p}floor (
  namespace  VARBINARY(512) NOT NULL PRIMARY KEY,
  token      BIGINT NOT NULL
) ENGINE = InnoDB`,
  ];
}
