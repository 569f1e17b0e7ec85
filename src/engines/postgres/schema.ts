/**
 * The tables, and the numbered migrations that make them. Many processes may start at once: whoever migrates holds an
 * advisory lock, and each migration is one transaction with the note that it was made. A database that is ahead of us is
 * fine: migrations keep what older versions call, so that a fleet can be updated one by one.
 */
import { EngineError } from '../../core/errors.js';
import type { Schema } from '../../kit/schema.js';
import { BEGIN, type Database, type Run } from './client/database.js';
import { MigrationLockError } from '../../sql/errors.js';
import { postgresFenceTable } from '../../sql/fence-table.js';
import type { Names } from '../../sql/postgres-names.js';
import { routines } from './protocol.js';
import { codeOf, isMissing, readOnly } from './client/errors.js';

interface Migration {
  readonly title: string;
  readonly statements: (names: Names) => readonly string[];
}

/** Never change one that has been released: add another. */
const MIGRATIONS: readonly Migration[] = [
  { title: 'tables of sessions, lines, claims and registers', statements: tables },
  // They are made by the last migration that changed any of them.
  { title: 'functions', statements: () => [] },
  { title: 'the table of fences', statements: (names) => [postgresFenceTable(names)] },
  { title: 'the nonce of a claim', statements: (names) => [nonceOfClaims(names), ...routines(names)] },
];

function tables(names: Names): string[] {
  // Names are compared as bytes, whatever the database's own collation.
  const text = 'text COLLATE "C"';
  return [
    // Updated by every beat, in place: half of each page is left free for that.
    `CREATE TABLE ${names.of('session')} (
  id          ${text} PRIMARY KEY,     -- a secret: who knows it can end the session
  namespace   ${text} NOT NULL,
  inbox       ${text} NOT NULL,        -- the channel of its process
  ttl         interval NOT NULL,
  expires     timestamptz NOT NULL
) WITH (fillfactor = 50)`,
    `CREATE TABLE ${names.of('line')} (
  namespace   ${text} NOT NULL,
  line        ${text} NOT NULL,        -- 'l' or 's' (lock, semaphore), and the name
  capacity    bigint NOT NULL,
  held        bigint NOT NULL,         -- sum of the weights that hold
  waiting     bigint NOT NULL,         -- how many wait
  last_token  bigint NOT NULL,
  used        timestamptz NOT NULL,
  PRIMARY KEY (namespace, line)
) WITH (fillfactor = 50)`,
    `CREATE TABLE ${names.of('claim')} (
  session     ${text} NOT NULL,
  id          ${text} NOT NULL,
  namespace   ${text} NOT NULL,
  line        ${text} NOT NULL,
  serial      bigint NOT NULL,
  weight      bigint NOT NULL,
  held        boolean NOT NULL,
  token       bigint NOT NULL,         -- order in line
  since       timestamptz NOT NULL,
  note        text NOT NULL,
  evicted     text,                    -- why it is to go, as JSON
  PRIMARY KEY (session, id)
)`,
    `CREATE INDEX ${names.index('in_line')} ON ${names.of('claim')} (namespace, line, held, token)`,
    `CREATE TABLE ${names.of('floor')} (
  namespace   ${text} PRIMARY KEY,
  token       bigint NOT NULL DEFAULT 0
)`,
    `CREATE TABLE ${names.of('register')} (
  namespace   ${text} NOT NULL,
  name        ${text} NOT NULL,
  value       bytea,                   -- UTF-8; as text it could not have a NUL
  token       bigint NOT NULL,
  written     timestamptz NOT NULL,
  max_read    bigint NOT NULL,
  max_write   bigint NOT NULL,
  kept_until  timestamptz,             -- null: for ever
  PRIMARY KEY (namespace, name)
)`,
    `CREATE INDEX ${names.index('kept')} ON ${names.of('register')} (kept_until) WHERE kept_until IS NOT NULL`,
  ];
}

/** Which the claim's session chose, and is told with its grant: see kit/message.ts. Null: it entered without one. */
function nonceOfClaims(names: Names): string {
  return `ALTER TABLE ${names.of('claim')} ADD COLUMN nonce text`;
}

/**
 * For another that migrates, which takes a moment. Whoever needs a lock asks again; `holdfast schema apply` asks once. Below the
 * deadline of a statement, so that it is the server that answers.
 */
const PATIENCE_MS = { firstUse: 1_000, apply: 4_000 };

export class PostgresSchema implements Schema {
  readonly #database: Database;
  readonly #names: Names;

  constructor(database: Database, names: Names) {
    this.#database = database;
    this.#names = names;
  }

  print(): string {
    return printSchema(this.#names);
  }

  apply(): Promise<readonly string[]> {
    return this.migrate(PATIENCE_MS.apply);
  }

  /** @param patienceMs how long to wait for another that migrates. */
  async migrate(patienceMs: number = PATIENCE_MS.firstUse): Promise<readonly string[]> {
    return this.#database.pinned(async (run) => {
      await run(BEGIN);
      try {
        const [[isReadOnly] = []] = await run(`SELECT pg_catalog.current_setting('transaction_read_only')`);
        if (isReadOnly === 'on') throw readOnly();
        await lockMigrations(run, patienceMs);
        const [found] = await run('SELECT FROM pg_catalog.pg_namespace WHERE nspname = $1', [this.#names.schema]);
        // Not IF NOT EXISTS: that needs the right to make schemas even if it is there.
        if (!found) await run(`CREATE SCHEMA "${this.#names.schema}"`);
        const done = await this.#version(run);
        const missing = MIGRATIONS.slice(done ?? 0);
        if (done === undefined) await run(migrationTable(this.#names));
        for (const [at, { statements }] of missing.entries()) {
          for (const statement of statements(this.#names)) await run(statement);
          await run(note(this.#names, (done ?? 0) + at + 1));
        }
        await run('COMMIT');
        return missing.map(({ title }) => title);
      } catch (error) {
        await run('ROLLBACK').catch(() => {});
        throw error;
      }
    });
  }

  /** Makes sure that everything is there, before the first lock. */
  async ensure(mayMigrate: boolean): Promise<void> {
    const version = await this.#database
      .pinned((run) => run(`SELECT max(version)::text FROM ${this.#names.of('migration')}`))
      .then(([row]) => Number(row?.[0]))
      .catch((error: unknown) => {
        if (isMissing(error)) return 0;
        throw error;
      });
    if (version >= MIGRATIONS.length) return;
    if (!mayMigrate) {
      throw new EngineError(
        `PostgreSQL lacks the tables of Holdfast in schema "${this.#names.schema}" (version ${version}, not ${MIGRATIONS.length}), and migrate is false. ` +
          'Run: holdfast schema apply',
        { retryable: false },
      );
    }
    await this.migrate();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#database.close();
  }

  async #version(run: Run): Promise<number | undefined> {
    const table = this.#names.of('migration');
    const [[found] = []] = await run('SELECT pg_catalog.to_regclass($1)::text', [table]);
    if (!found) return undefined;
    const [[version] = []] = await run(`SELECT coalesce(max(version), 0)::text FROM ${table}`);
    return Number(version);
  }
}

/** One lock for all schemas: there are few. */
async function lockMigrations(run: Run, patienceMs: number): Promise<void> {
  await run(`SET LOCAL statement_timeout = 0; SET LOCAL lock_timeout = ${patienceMs}`);
  try {
    await run(`SELECT pg_catalog.pg_advisory_xact_lock(pg_catalog.hashtextextended('holdfast migration', 0))`);
  } catch (error) {
    if (codeOf(error) !== LOCK_NOT_AVAILABLE) throw error;
    throw new MigrationLockError('of this database', 'pg_locks shows it, with locktype advisory');
  }
}

const LOCK_NOT_AVAILABLE = '55P03';

/** All statements, as one script. */
function printSchema(names: Names): string {
  const steps = MIGRATIONS.flatMap(({ title, statements }, at) => [
    `-- ${at + 1}: ${title}\n${statements(names).join(';\n\n')}`,
    note(names, at + 1),
  ]);
  return (
    [
      `BEGIN`,
      `CREATE SCHEMA IF NOT EXISTS "${names.schema}"`,
      migrationTable(names),
      ...steps,
      `COMMIT`,
      `-- For a role that is not their owner:\n${grants(names)
        .map((grant) => `-- ${grant};`)
        .join('\n')}`,
    ].join(';\n\n') + '\n'
  );
}

/** What a role needs that did not make the tables itself. */
function grants({ schema }: Names, role = 'the_role'): readonly string[] {
  return [
    `GRANT USAGE ON SCHEMA "${schema}" TO ${role}`,
    `GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA "${schema}" TO ${role}`,
  ];
}

function migrationTable(names: Names): string {
  return `CREATE TABLE ${names.of('migration')} (
  version     integer PRIMARY KEY,
  applied     timestamptz NOT NULL DEFAULT clock_timestamp()
)`;
}

function note(names: Names, version: number): string {
  return `INSERT INTO ${names.of('migration')} (version) VALUES (${version})`;
}
