/**
 * The tables beside those of the queue. Names, namespaces and ids are bytes: a collated column takes `job`, `JOB` and
 * `job ` for one. Times are µs since 1970 by the server's clock, in BIGINTs, because a DATETIME knows time zones.
 *
 *     register   one row each: the value, who wrote it, and the fence: the highest token that a reader and a writer has
 *                shown. It lives until somebody deletes it, or until its time is over
 *     floor      for each namespace a token that no new row of its names may fall below: rows that nobody uses are
 *                deleted, and this remembers the highest of theirs
 *     row        (`row`) one row for each lock: who has it, until when, and its token
 *     version    (`version`) the same; the version is the token
 *     mint       (`for-update`, `get-lock`) the last token of each name
 *     latch      (`for-update`) rows to be locked
 *     downgrade  (`for-update`) rows that are never committed: pinned/for-update.ts
 */

/** Fixed when its statement begins: take it after a statement that waited. The session's time zone does not matter. */
export const NOW = `TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))`;

export function registerTables(p: string): readonly string[] {
  return [
    `CREATE TABLE IF NOT EXISTS ${p}register (
  namespace  VARBINARY(512) NOT NULL,
  name       VARBINARY(1024) NOT NULL,
  value      LONGBLOB,
  token      BIGINT NOT NULL,
  written    BIGINT NOT NULL,
  max_read   BIGINT NOT NULL,
  max_write  BIGINT NOT NULL,
  kept_until BIGINT,
  PRIMARY KEY (namespace, name),
  KEY (kept_until)
) ENGINE = InnoDB`,
    `CREATE TABLE IF NOT EXISTS ${p}floor (
  namespace  VARBINARY(512) NOT NULL PRIMARY KEY,
  token      BIGINT NOT NULL
) ENGINE = InnoDB`,
  ];
}

/** `until` is when it is free: for `mint` and `latch`, when it was last used. */
export function slotTables(p: string): readonly string[] {
  return ['row', 'version', 'mint', 'latch'].map(
    (table) => `CREATE TABLE IF NOT EXISTS ${p}${table} (
  namespace  VARBINARY(512) NOT NULL,
  name       VARBINARY(512) NOT NULL,
  owner      VARBINARY(64) NOT NULL,
  token      BIGINT NOT NULL,
  until      BIGINT NOT NULL,
  PRIMARY KEY (namespace, name)
) ENGINE = InnoDB`,
  );
}

export function downgradeTable(p: string): string {
  return `CREATE TABLE IF NOT EXISTS ${p}downgrade (
  namespace  VARBINARY(512) NOT NULL,
  name       VARBINARY(512) NOT NULL,
  PRIMARY KEY (namespace, name)
) ENGINE = InnoDB`;
}

/** What a new row's token begins with. Bound: the namespace. */
export const firstToken = (p: string): string =>
  `GREATEST(${NOW}, COALESCE((SELECT token FROM ${p}floor WHERE namespace = ?), 0) + 1)`;
