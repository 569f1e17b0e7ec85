/**
 * The protocol of `queue`, as tables and stored procedures: a transition is one call, one round trip, and never waits
 * for a client in the middle.
 *
 *     session   who lives, and until when
 *     line      one row for each line: capacity, sum of held weights, number of waiters, `frontier` (the last token that
 *               was granted), `last` (the last token that was given out). Whoever changes a line's claims has locked
 *               this row, found by its primary key: two names never block each other
 *     claim     one row each. Tokens are the order in line; `held` is 1 for the longest prefix that fits, which are those
 *               up to the frontier. `news` is when another changed it (granted, evicted): the poll asks for that
 *
 * Locks are taken in one order: a session's row, then lines by primary key. So the procedures don't deadlock with each
 * other; what InnoDB rolls back all the same is repeated by the client.
 *
 * - enter: the session is locked in share mode, so that nobody buries it meanwhile; the same claim again gives the same
 *   answer; if something is in the way and somebody is dead, the dead are buried first. Token: max(last + 1, µs).
 * - leave: remove, subtract its weight only if it held, admit.
 * - bury: lock the session's row; if it is really over, take all of its claims out, admit, and delete the row, all in one
 *   transaction (500 claims in each, if there are more: `expires` = 0 keeps it dead in between).
 * - A beat is an UPDATE of a row that is still alive; no row means that it was buried, or is over.
 *
 * What can go wrong: the server's clock jumps ahead, and living sessions are over; it jumps back, and dead ones live
 * longer, but tokens still grow. Isolation is READ COMMITTED throughout, so a search takes no gap locks; with
 * binlog_format = STATEMENT InnoDB refuses to write then.
 */
import type { Clock } from '../../../core/clock.js';
import type { LineKind } from '../../../core/engine.js';
import type { CallOptions, Database } from '../client/database.js';
import type { Row } from '../client/port.js';
import { NOW } from '../tables.js';

/** The tables as one engine uses them: for one namespace. */
export interface QueueTables {
  readonly database: Database;
  readonly prefix: string;
  readonly namespace: Buffer;
  /** By procedures, or by plain statements. */
  readonly steps: Steps;
  readonly clock: Clock;
}

/** A kind of line is written as its number. */
export const KINDS: readonly LineKind[] = ['lock', 'semaphore'];

/** Buries whoever is dead. */
export async function buryTheDead({ steps, namespace }: QueueTables): Promise<void> {
  await steps('reap_2', [namespace], {});
}

/** The primary key of a line. */
export type LineKey = readonly [namespace: Buffer, kind: number, name: Buffer];

/** A claim, and where it stands. */
export type ClaimKey = readonly [session: Buffer, id: Buffer, ...line: LineKey];

/** What each procedure is called with. */
export interface StepValues {
  readonly enter_3: readonly [
    ...claim: ClaimKey,
    serial: number,
    weight: number,
    capacity: number,
    wait: number,
    note: Buffer,
  ];
  readonly leave_2: ClaimKey;
  readonly reweigh_2: readonly [...claim: ClaimKey, weight: number];
  readonly beat_1: readonly [session: Buffer, namespace: Buffer, unsettled: Buffer];
  readonly reap_2: readonly [namespace: Buffer];
  readonly bury_2: readonly [session: Buffer, force: number];
  readonly clean_1: readonly [namespace: Buffer, kind: number, after: Buffer, many: number, idleUs: number];
}

/** Carries out a step, by the name of its procedure, with its parameters; and gives its answer. */
export type Steps = <Step extends keyof StepValues>(
  step: Step,
  values: StepValues[Step],
  options: CallOptions,
) => Promise<readonly Row[]>;

export function procedureSteps(database: Database, p: string): Steps {
  return (step, values, options) =>
    database.rows(`CALL ${p}${step}(${values.map(() => '?').join(', ')})`, values, options);
}

const IDS = 'VARBINARY(64)';
const KEY = 'VARBINARY(512)';
const LINE_COLUMNS = `namespace  ${KEY} NOT NULL,
  kind       TINYINT NOT NULL,
  name       ${KEY} NOT NULL`;

export function queueTables(p: string): readonly string[] {
  return [
    `CREATE TABLE IF NOT EXISTS ${p}session (
  id         ${IDS} NOT NULL PRIMARY KEY,
  namespace  ${KEY} NOT NULL,
  ttl        BIGINT NOT NULL,
  expires    BIGINT NOT NULL,
  KEY by_expiry (namespace, expires)
) ENGINE = InnoDB`,
    `CREATE TABLE IF NOT EXISTS ${p}line (
  ${LINE_COLUMNS},
  capacity   BIGINT NOT NULL,
  held       BIGINT NOT NULL,
  waiting    BIGINT NOT NULL,
  frontier   BIGINT NOT NULL,
  last       BIGINT NOT NULL,
  touched    BIGINT NOT NULL,
  PRIMARY KEY (namespace, kind, name)
) ENGINE = InnoDB`,
    `CREATE TABLE IF NOT EXISTS ${p}claim (
  ${LINE_COLUMNS},
  token      BIGINT NOT NULL,
  session    ${IDS} NOT NULL,
  id         ${IDS} NOT NULL,
  serial     BIGINT NOT NULL,
  weight     BIGINT NOT NULL,
  held       TINYINT NOT NULL,
  since      BIGINT NOT NULL,
  news       BIGINT NOT NULL,
  note       MEDIUMBLOB NOT NULL,
  evicted    BLOB,
  PRIMARY KEY (namespace, kind, name, token),
  UNIQUE KEY of_session (session, id),
  KEY news (session, news)
) ENGINE = InnoDB`,
  ];
}

/** A new version of a procedure gets a new name, so that old and new processes can run beside each other. */
export function sessionProcedures(p: string): readonly string[] {
  return [beat(p), clean(p)];
}

/** Those that were changed since. */
export function lineProcedures(p: string): readonly string[] {
  return [admit(p), bury(p), reap(p), enter(p), leave(p), reweigh(p)];
}

/** A leader's value may have 64 KiB, and is JSON in a note, where a character may take six bytes: more than a BLOB holds. */
export function widerNotes(p: string): string {
  return `ALTER TABLE ${p}claim MODIFY COLUMN note MEDIUMBLOB NOT NULL`;
}

const BEGIN_TRANSACTION = `SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
    START TRANSACTION;`;

const LINE = 'namespace = p_namespace AND kind = p_kind AND name = p_name';

const LINE_PARAMETERS = `IN p_namespace ${KEY}, IN p_kind TINYINT, IN p_name ${KEY}`;

/** Nothing of a transition stays if a part of it fails. */
const UNDO = `DECLARE EXIT HANDLER FOR SQLEXCEPTION
  BEGIN
    ROLLBACK;
    RESIGNAL;
  END;`;

/**
 * Grants to those after the frontier while they fit. Claims of nobody go, and who is left is counted: there may be rows that no
 * count has. The line's row is locked by the caller, who also writes it. Sessions are not locked, or the order of locks would be
 * broken: a claim is deleted before its session is, so one that has none was written by hand. O(grants).
 */
const admit = (p: string): string => `CREATE PROCEDURE IF NOT EXISTS ${p}admit_2(
  ${LINE_PARAMETERS}, IN p_capacity BIGINT,
  INOUT p_held BIGINT, INOUT p_waiting BIGINT, INOUT p_frontier BIGINT)
SQL SECURITY INVOKER
BEGIN
  DECLARE v_token, v_weight BIGINT;
  DECLARE v_session ${IDS};
  admitting: WHILE p_waiting > 0 DO
    SET v_token = NULL;
    SELECT c.token, c.weight, s.id INTO v_token, v_weight, v_session
      FROM ${p}claim c LEFT JOIN ${p}session s ON s.id = c.session
      WHERE c.namespace = p_namespace AND c.kind = p_kind AND c.name = p_name AND c.token > p_frontier
      ORDER BY c.token LIMIT 1;
    IF v_token IS NULL THEN
      SET p_waiting = 0;
    ELSEIF v_session IS NULL THEN
      DELETE FROM ${p}claim WHERE ${LINE} AND token = v_token;
    ELSEIF p_held + v_weight > p_capacity THEN
      LEAVE admitting;
    ELSE
      UPDATE ${p}claim SET held = 1, news = ${NOW} WHERE ${LINE} AND token = v_token;
      SET p_held = p_held + v_weight, p_waiting = p_waiting - 1, p_frontier = v_token;
    END IF;
  END WHILE;
END`;

/** Takes a session and all of its claims away: if it is over, or by force. O(claims). */
const bury = (p: string): string => `CREATE PROCEDURE IF NOT EXISTS ${p}bury_2(IN p_session ${IDS}, IN p_force TINYINT)
SQL SECURITY INVOKER
BEGIN
  DECLARE v_expires, v_rows BIGINT;
  ${UNDO}
  burying: REPEAT
    ${BEGIN_TRANSACTION}
    SET v_expires = NULL, v_rows = 0;
    SELECT expires INTO v_expires FROM ${p}session WHERE id = p_session FOR UPDATE;
    IF v_expires IS NULL OR (v_expires > ${NOW} AND NOT p_force) THEN
      ROLLBACK;
      LEAVE burying;
    END IF;
    UPDATE ${p}session SET expires = 0 WHERE id = p_session;
    BEGIN
      DECLARE v_namespace, v_name, v_next_namespace, v_next_name ${KEY};
      DECLARE v_kind, v_next_kind, v_claim_held, v_missing, v_end TINYINT DEFAULT 0;
      DECLARE v_next_token, v_token, v_weight, v_capacity, v_held, v_waiting, v_frontier BIGINT;
      DECLARE claims CURSOR FOR SELECT namespace, kind, name, token FROM ${p}claim
        WHERE session = p_session ORDER BY namespace, kind, name, token LIMIT 500;
      DECLARE CONTINUE HANDLER FOR NOT FOUND SET v_missing = 1;
      OPEN claims;
      FETCH claims INTO v_next_namespace, v_next_kind, v_next_name, v_next_token;
      SET v_end = v_missing;
      WHILE NOT v_end DO
        SET v_namespace = v_next_namespace, v_kind = v_next_kind, v_name = v_next_name;
        SET v_capacity = NULL, v_held = NULL, v_waiting = NULL, v_frontier = NULL;
        SELECT capacity, held, waiting, frontier INTO v_capacity, v_held, v_waiting, v_frontier FROM ${p}line
          WHERE namespace = v_namespace AND kind = v_kind AND name = v_name FOR UPDATE;
        WHILE NOT v_end AND v_next_namespace = v_namespace AND v_next_kind = v_kind AND v_next_name = v_name DO
          SET v_rows = v_rows + 1, v_token = NULL;
          -- It may have left, or have been granted, until the line was ours.
          SELECT token, weight, held INTO v_token, v_weight, v_claim_held FROM ${p}claim
            WHERE namespace = v_namespace AND kind = v_kind AND name = v_name AND token = v_next_token;
          IF v_token IS NOT NULL THEN
            DELETE FROM ${p}claim WHERE namespace = v_namespace AND kind = v_kind AND name = v_name AND token = v_token;
            SET v_held = v_held - IF(v_claim_held, v_weight, 0), v_waiting = v_waiting - IF(v_claim_held, 0, 1);
          END IF;
          SET v_missing = 0;
          FETCH claims INTO v_next_namespace, v_next_kind, v_next_name, v_next_token;
          SET v_end = v_missing;
        END WHILE;
        CALL ${p}admit_2(v_namespace, v_kind, v_name, v_capacity, v_held, v_waiting, v_frontier);
        UPDATE ${p}line SET held = v_held, waiting = v_waiting, frontier = v_frontier, touched = ${NOW}
          WHERE namespace = v_namespace AND kind = v_kind AND name = v_name;
      END WHILE;
      CLOSE claims;
    END;
    IF v_rows < 500 THEN
      DELETE FROM ${p}session WHERE id = p_session;
    END IF;
    COMMIT;
  UNTIL v_rows < 500 END REPEAT;
END`;

/**
 * Buries sessions that are over, a few in one call: whoever comes next goes on. One whose rows can't be counted is left, and any of
 * them come first, so that it can't keep the others from their turn.
 */
const reap = (p: string): string => `CREATE PROCEDURE IF NOT EXISTS ${p}reap_2(IN p_namespace ${KEY})
SQL SECURITY INVOKER
BEGIN
  DECLARE v_session ${IDS};
  DECLARE v_count INT DEFAULT 0;
  DECLARE CONTINUE HANDLER FOR SQLSTATE '22003' BEGIN END;
  reaping: REPEAT
    SET v_session = NULL, v_count = v_count + 1;
    SELECT id INTO v_session FROM ${p}session
      WHERE namespace = p_namespace AND expires <= ${NOW} ORDER BY RAND() LIMIT 1;
    IF v_session IS NULL THEN
      LEAVE reaping;
    END IF;
    CALL ${p}bury_2(v_session, 0);
  UNTIL v_count >= 16 END REPEAT;
END`;

/** The first part of enter: the line locked, the session proven, and the dead out of the way. */
const look = (p: string): string => `trying: LOOP
    ${BEGIN_TRANSACTION}
    SET v_expires = NULL, v_capacity = NULL, v_token = NULL;
    SELECT expires INTO v_expires FROM ${p}session WHERE id = p_session LOCK IN SHARE MODE;
    SELECT capacity, held, waiting, frontier, last INTO v_capacity, v_held, v_waiting, v_frontier, v_last
      FROM ${p}line WHERE ${LINE} FOR UPDATE;
    IF v_capacity IS NULL THEN
      -- Whoever loses the race for a new line waits here, and finds it. Not IGNORE: its shared lock would deadlock.
      INSERT INTO ${p}line VALUES (p_namespace, p_kind, p_name, p_capacity, 0, 0, 0, 0, 0)
        ON DUPLICATE KEY UPDATE touched = touched + 1;
      SELECT capacity, held, waiting, frontier, last INTO v_capacity, v_held, v_waiting, v_frontier, v_last
        FROM ${p}line WHERE ${LINE} FOR UPDATE;
      -- After the line is there: whoever deleted it has raised the floor before.
      SET v_last = GREATEST(v_last, COALESCE((SELECT token FROM ${p}floor WHERE namespace = p_namespace), 0));
    END IF;
    SET v_now = ${NOW};
    IF v_expires IS NULL OR v_expires <= v_now THEN
      ROLLBACK;
      SELECT 'gone' AS state, NULL AS figure;
      LEAVE entering;
    END IF;
    SET v_holds = v_waiting = 0 AND v_held + p_weight <= v_capacity;
    IF v_held = 0 AND v_waiting = 0 THEN
      SET v_capacity = p_capacity, v_holds = 1;
      LEAVE trying;
    END IF;
    -- A claim that stands already has made the line what it is: only then is it worth to look for it.
    SELECT token, held INTO v_token, v_claim_held FROM ${p}claim WHERE session = p_session AND id = p_id;
    IF v_token IS NOT NULL THEN
      COMMIT;
      SELECT IF(v_claim_held, 'held', 'waiting') AS state, CAST(v_token AS CHAR) AS figure;
      LEAVE entering;
    END IF;
    IF (v_holds AND v_capacity = p_capacity) OR v_tries > 0
      OR NOT EXISTS (SELECT 1 FROM ${p}session WHERE namespace = p_namespace AND expires <= v_now) THEN
      LEAVE trying;
    END IF;
    -- Sessions are locked before lines: give the line back first.
    ROLLBACK;
    CALL ${p}reap_2(p_namespace);
    SET v_tries = 1;
  END LOOP;`;

/** Answer: held and the token; waiting; refused; mismatch and the line's capacity; gone. O(1), and what is reaped. */
const enter = (p: string): string => `CREATE PROCEDURE IF NOT EXISTS ${p}enter_3(
  IN p_session ${IDS}, IN p_id ${IDS}, ${LINE_PARAMETERS},
  IN p_serial BIGINT, IN p_weight BIGINT, IN p_capacity BIGINT, IN p_wait TINYINT, IN p_note MEDIUMBLOB)
SQL SECURITY INVOKER
entering: BEGIN
  DECLARE v_tries, v_claim_held, v_holds TINYINT DEFAULT 0;
  DECLARE v_expires, v_capacity, v_held, v_waiting, v_frontier, v_last, v_token, v_now BIGINT;
  ${UNDO}
  ${look(p)}
  IF v_capacity <> p_capacity THEN
    ROLLBACK;
    SELECT 'mismatch' AS state, CAST(v_capacity AS CHAR) AS figure;
  ELSEIF NOT v_holds AND NOT p_wait THEN
    ROLLBACK;
    SELECT 'refused' AS state, NULL AS figure;
  ELSE
    SET v_token = GREATEST(v_last + 1, v_now);
    INSERT INTO ${p}claim VALUES (p_namespace, p_kind, p_name, v_token, p_session, p_id, p_serial, p_weight, v_holds,
      v_now, 0, p_note, NULL);
    UPDATE ${p}line SET capacity = v_capacity, held = v_held + IF(v_holds, p_weight, 0),
      waiting = v_waiting + IF(v_holds, 0, 1), frontier = IF(v_holds, v_token, v_frontier), last = v_token,
      touched = v_now WHERE ${LINE};
    COMMIT;
    SELECT IF(v_holds, 'held', 'waiting') AS state, CAST(v_token AS CHAR) AS figure;
  END IF;
END`;

/** Answer: whether it stood there, and whether somebody was admitted. O(1), and whom it admits. */
const leave = (p: string): string => `CREATE PROCEDURE IF NOT EXISTS ${p}leave_2(
  IN p_session ${IDS}, IN p_id ${IDS}, ${LINE_PARAMETERS})
SQL SECURITY INVOKER
leaving: BEGIN
  DECLARE v_claim_held TINYINT;
  DECLARE v_capacity, v_held, v_waiting, v_frontier, v_before, v_token, v_weight BIGINT;
  ${UNDO}
  ${BEGIN_TRANSACTION}
  SELECT capacity, held, waiting, frontier INTO v_capacity, v_held, v_waiting, v_frontier
    FROM ${p}line WHERE ${LINE} FOR UPDATE;
  SELECT token, weight, held INTO v_token, v_weight, v_claim_held
    FROM ${p}claim WHERE session = p_session AND id = p_id;
  IF v_token IS NULL OR v_capacity IS NULL THEN
    ROLLBACK;
    SELECT 0 AS found, 0 AS admitted;
    LEAVE leaving;
  END IF;
  DELETE FROM ${p}claim WHERE ${LINE} AND token = v_token;
  SET v_held = v_held - IF(v_claim_held, v_weight, 0), v_waiting = v_waiting - IF(v_claim_held, 0, 1);
  SET v_before = v_frontier;
  IF v_waiting > 0 THEN
    CALL ${p}admit_2(p_namespace, p_kind, p_name, v_capacity, v_held, v_waiting, v_frontier);
  END IF;
  UPDATE ${p}line SET held = v_held, waiting = v_waiting, frontier = v_frontier, touched = ${NOW} WHERE ${LINE};
  COMMIT;
  SELECT 1 AS found, v_frontier > v_before AS admitted;
END`;

/** Makes a claim lighter where it stands. O(1), and whom it admits. */
const reweigh = (p: string): string => `CREATE PROCEDURE IF NOT EXISTS ${p}reweigh_2(
  IN p_session ${IDS}, IN p_id ${IDS}, ${LINE_PARAMETERS}, IN p_weight BIGINT)
SQL SECURITY INVOKER
reweighing: BEGIN
  DECLARE v_claim_held TINYINT;
  DECLARE v_capacity, v_held, v_waiting, v_frontier, v_token, v_weight BIGINT;
  ${UNDO}
  ${BEGIN_TRANSACTION}
  SELECT capacity, held, waiting, frontier INTO v_capacity, v_held, v_waiting, v_frontier
    FROM ${p}line WHERE ${LINE} FOR UPDATE;
  SELECT token, weight, held INTO v_token, v_weight, v_claim_held
    FROM ${p}claim WHERE session = p_session AND id = p_id;
  IF v_token IS NULL OR v_capacity IS NULL OR p_weight >= v_weight THEN
    ROLLBACK;
    LEAVE reweighing;
  END IF;
  UPDATE ${p}claim SET weight = p_weight WHERE ${LINE} AND token = v_token;
  SET v_held = v_held - IF(v_claim_held, v_weight - p_weight, 0);
  CALL ${p}admit_2(p_namespace, p_kind, p_name, v_capacity, v_held, v_waiting, v_frontier);
  UPDATE ${p}line SET held = v_held, waiting = v_waiting, frontier = v_frontier, touched = ${NOW} WHERE ${LINE};
  COMMIT;
END`;

/**
 * Moves the end of a session on, if it is not over. Answer: nothing; or number, holders and checksum of its claims but
 * those that are named (with commas in between), whether one is evicted, and whether anybody is dead. O(claims).
 */
const beat = (p: string): string => `CREATE PROCEDURE IF NOT EXISTS ${p}beat_1(
  IN p_session ${IDS}, IN p_namespace ${KEY}, IN p_unsettled LONGBLOB)
SQL SECURITY INVOKER
BEGIN
  UPDATE ${p}session SET expires = ${NOW} + ttl WHERE id = p_session AND expires > ${NOW};
  IF ROW_COUNT() > 0 THEN
    SELECT COUNT(*), CAST(COALESCE(SUM(held), 0) AS CHAR), CAST(COALESCE(SUM(serial), 0) MOD 4294967296 AS CHAR),
        EXISTS (SELECT 1 FROM ${p}claim WHERE session = p_session AND evicted IS NOT NULL),
        EXISTS (SELECT 1 FROM ${p}session WHERE namespace = p_namespace AND expires <= ${NOW})
      FROM ${p}claim WHERE session = p_session AND NOT FIND_IN_SET(id, p_unsettled);
  END IF;
END`;

/**
 * Deletes lines that nobody has used for a while, of so many after a name; the floor is raised first, and only lines that
 * are not above it are deleted. Answer: the last name looked at (none: that was the end), and how many were deleted.
 */
const clean = (p: string): string => `CREATE PROCEDURE IF NOT EXISTS ${p}clean_1(
  ${LINE_PARAMETERS}, IN p_many INT, IN p_idle BIGINT)
SQL SECURITY INVOKER
BEGIN
  DECLARE v_until ${KEY};
  DECLARE v_token BIGINT;
  DECLARE v_count, v_deleted INT DEFAULT 0;
  ${UNDO}
  SELECT MAX(name), COUNT(*), MAX(last) INTO v_until, v_count, v_token FROM (
    SELECT name, last FROM ${p}line WHERE namespace = p_namespace AND kind = p_kind AND name > p_name
      ORDER BY name LIMIT p_many) AS chunk;
  IF v_count > 0 THEN
    INSERT INTO ${p}floor VALUES (p_namespace, v_token) ON DUPLICATE KEY UPDATE token = GREATEST(token, v_token);
    SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
    DELETE FROM ${p}line WHERE namespace = p_namespace AND kind = p_kind AND name > p_name AND name <= v_until
      AND held = 0 AND waiting = 0 AND touched < ${NOW} - p_idle AND last <= v_token;
    SET v_deleted = ROW_COUNT();
  END IF;
  SELECT IF(v_count < p_many, NULL, v_until) AS until, v_deleted AS deleted;
END`;
