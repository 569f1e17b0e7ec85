/**
 * Settings that a server, a database, a role, a pool or a pooler may have otherwise than we need them. Most are made harmless
 * where they would matter: functions have a search_path of their own and make their commit durable, and all values travel
 * as parameters and as text. What is left is checked here: once when an engine opens, and, because each connection has its
 * own, in every call that rests on it.
 */
import { ConfigError } from '../../core/errors.js';
import type { Database, Row } from './client/database.js';
import { readOnly as readOnlyServer } from './client/errors.js';

/** A statement of ours takes a few milliseconds; this is for a server that has much else to do. */
const LEAST_STATEMENT_TIMEOUT_MS = 100;

export async function checkSettings(database: Database): Promise<void> {
  // What is thrown in here costs the connection: the next one may lead to another server.
  await database.pinned(async (run) => {
    const [row = []] = await run(`SELECT
      pg_catalog.current_setting('server_version_num'), pg_catalog.current_setting('server_encoding'),
      pg_catalog.pg_is_in_recovery()::text, pg_catalog.current_setting('default_transaction_read_only'),
      pg_catalog.current_setting('transaction_isolation'), pg_catalog.current_setting('client_encoding'),
      (SELECT setting FROM pg_catalog.pg_settings WHERE name = 'statement_timeout')`);
    const [version, encoding, standby, readOnly, isolation, clientEncoding, statementTimeout] = row;
    if (Number(version) < 120_000) throw new ConfigError('postgres: PostgreSQL 12 or newer is needed.');
    if (encoding !== 'UTF8')
      throw new ConfigError(`postgres: the database has the encoding ${encoding}; names need UTF8.`);
    if (standby === 'true') throw readOnlyServer();
    if (readOnly === 'on')
      throw new ConfigError(
        'postgres: default_transaction_read_only is on, and locks are written. Give Holdfast a role or a pool where it is off.',
      );
    requireSound(isolation, clientEncoding);
    const limitMs = Number(statementTimeout);
    if (limitMs > 0 && limitMs < LEAST_STATEMENT_TIMEOUT_MS)
      throw new ConfigError(
        `postgres: statement_timeout is ${limitMs} ms. Give Holdfast a role or a pool where it is 0, or at least ${LEAST_STATEMENT_TIMEOUT_MS} ms.`,
      );
  });
}

const ISOLATION = `pg_catalog.current_setting('transaction_isolation')`;
const ENCODING = `pg_catalog.current_setting('client_encoding')`;

/** No answer of a function begins like this. */
const UNSOUND = '!';

/**
 * A statement that calls a function, and only on a connection that is as the protocol needs it. At another level of isolation
 * a function would not see what was committed before it got its lock; in another encoding, one name would be two. The answer is text, as the server
 * writes it, also where a pool asks for binary values (`binary: true`); that of null is empty.
 */
export function guarded(call: string): string {
  return `SELECT CASE WHEN ${ISOLATION} = 'read committed' AND ${ENCODING} = 'UTF8' THEN pg_catalog.concat(${call})
    ELSE '${UNSOUND}' || ${ISOLATION} || '${UNSOUND}' || ${ENCODING} END`;
}

/** Of a guarded statement. */
export function answerOf([row]: readonly Row[]): string | null {
  const answer = row?.[0] || null;
  if (answer?.startsWith(UNSOUND)) {
    const [, isolation, encoding] = answer.split(UNSOUND);
    requireSound(isolation, encoding);
  }
  return answer;
}

function requireSound(isolation: string | null | undefined, encoding: string | null | undefined): void {
  if (isolation !== 'read committed')
    throw new ConfigError(
      `postgres: a connection has the isolation level "${isolation}" (default_transaction_isolation). Give Holdfast a role or a pool with "read committed".`,
    );
  if (encoding !== 'UTF8')
    throw new ConfigError(`postgres: a connection has the client_encoding ${encoding}; names need UTF8.`);
}
