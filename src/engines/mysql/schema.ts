/**
 * Makes and checks the tables and routines, by numbered migrations. Several processes may start at once: whoever gets the
 * server's lock of this name makes them, the others wait and find them made. Every statement may be repeated, because
 * the server commits each of them at once: a migration that was cut short is done again from its beginning.
 *
 *     migration   one row for each migration that was made
 */
import { EngineError } from '../../core/errors.js';
import type { Schema } from '../../kit/schema.js';
import { warnOnce } from '../../kit/warn-once.js';
import type { Database } from './client/database.js';
import type { Row } from './client/port.js';
import { lineProcedures, procedureSteps, sessionProcedures, queueTables, widerNotes } from './queue/protocol.js';
import { mysqlFenceOpened, mysqlFenceTable } from '../../sql/fence-table.js';
import { downgradeTable, registerTables, slotTables } from './tables.js';
import { errnoOf, explained, isBeyond } from './client/errors.js';

interface Migration {
  readonly version: number;
  readonly about: string;
  readonly statements: readonly string[];
  /** Who may not make these can do without. */
  readonly optional?: true;
}

function migrations(p: string): readonly Migration[] {
  return [
    { version: 1, about: 'registers', statements: registerTables(p) },
    { version: 2, about: 'the queue', statements: queueTables(p) },
    { version: 3, about: 'one row for each lock', statements: slotTables(p) },
    { version: 4, about: 'readers that were writers', statements: [downgradeTable(p)] },
    { version: 5, about: 'steps of sessions', statements: sessionProcedures(p), optional: true },
    { version: 6, about: 'fences', statements: [mysqlFenceTable(p)] },
    {
      version: 7,
      about: 'fences that count, notes of any size',
      statements: [
        ...unlessColumn({ table: `${p}fence`, name: 'opened', type: 'bigint' }, mysqlFenceOpened(p)),
        ...unlessColumn({ table: `${p}claim`, name: 'note', type: 'mediumblob' }, widerNotes(p)),
      ],
    },
    { version: 8, about: 'steps of lines', statements: lineProcedures(p), optional: true },
  ];
}

/**
 * Changes a column, unless it is so already: MySQL has no ADD COLUMN IF NOT EXISTS, a fence may have made its table by itself, and
 * whoever makes all tables anew needs no right to change any.
 */
function unlessColumn(column: { table: string; name: string; type: string }, statement: string): readonly string[] {
  const { table, name, type } = column;
  const found = `SELECT COUNT(*) FROM information_schema.columns
    WHERE table_schema = DATABASE() AND table_name = '${table}' AND column_name = '${name}' AND data_type = '${type}'`;
  return [
    `SET @holdfast = IF((${found}) > 0, 'DO 0', '${statement}')`,
    'PREPARE holdfast FROM @holdfast',
    'EXECUTE holdfast',
    'DEALLOCATE PREPARE holdfast',
  ];
}

const migrationTable = (p: string): string => `CREATE TABLE IF NOT EXISTS ${p}migration (
  version  INT NOT NULL PRIMARY KEY,
  made     DATETIME NOT NULL
) ENGINE = InnoDB`;

/** DDL may take a while. */
const WITHIN_MS = 30_000;
/** For others who do the same. Whoever needs a lock asks again; `holdfast schema apply` asks once. */
const PATIENCE_MS = { firstUse: 1_000, apply: 5_000 };
const NOT_ALLOWED = new Set([1044, 1142, 1227, 1370, 1419]);

export interface SchemaNeeds {
  readonly mayMigrate: boolean;
  readonly procedures: boolean;
}

/** At the first use: one question if all is there. */
export async function ensureSchema(
  database: Database,
  prefix: string,
  { mayMigrate, procedures }: SchemaNeeds,
): Promise<void> {
  const missing = await missingMigrations((sql) => database.rows(sql, [], { unprepared: true }), prefix);
  const needed = missing.find(({ optional }) => !optional);
  if (mayMigrate && (needed || (procedures && missing.length > 0)))
    await migrate(database, prefix, { isFirstUse: true });
  else if (needed)
    throw new EngineError(
      'The tables of Holdfast are not up to date in this database, and migrate is false. Run `holdfast schema apply`, or what ' +
        '`holdfast schema print` shows; the first statement that is missing:',
      { retryable: false, statement: needed.statements[0] },
    );
}

/** They are not there; the user may not; the server has never heard of them. */
const WITHOUT_PROCEDURES = new Set([
  ...['ER_SP_DOES_NOT_EXIST', 'ER_PROCACCESS_DENIED_ERROR'],
  ...['ER_PARSE_ERROR', 'ER_SYNTAX_ERROR', 'ER_NOT_SUPPORTED_YET'],
]);

/** Whether the user may call the procedures of the queue, and the newest is there: asked by nobody, who is told to be gone. */
export async function hasProcedures(database: Database, prefix: string): Promise<boolean> {
  const nobody = Buffer.alloc(0);
  try {
    await procedureSteps(database, prefix)('enter_3', [nobody, nobody, nobody, 0, nobody, 0, 0, 0, 0, nobody], {});
    return true;
  } catch (error) {
    const { code = '' } = ((error as Error).cause ?? {}) as { code?: string };
    if (WITHOUT_PROCEDURES.has(code)) return false;
    throw error;
  }
}

export class MysqlSchema implements Schema {
  readonly #open: () => Promise<Database>;
  readonly #prefix: string;
  #database: Promise<Database> | undefined;

  constructor(open: () => Promise<Database>, prefix: string) {
    this.#open = open;
    this.#prefix = prefix;
  }

  print(): string {
    const p = this.#prefix;
    const parts = migrations(p).map(({ version, about, statements }) =>
      [`-- ${version}: ${about}`, ...[...statements, recorded(p, version)].map(terminated)].join('\n\n'),
    );
    return [terminated(migrationTable(p)), ...parts, ''].join('\n\n');
  }

  async apply(): Promise<readonly string[]> {
    this.#database ??= this.#open();
    return migrate(await this.#database, this.#prefix, { isFirstUse: false });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await (await this.#database?.catch(() => undefined))?.close();
  }
}

/** For the command line of mysql: a procedure has semicolons of its own. */
function terminated(statement: string): string {
  return statement.startsWith('CREATE PROCEDURE') ? `DELIMITER //\n${statement} //\nDELIMITER ;` : `${statement};`;
}

type RunSql = (sql: string) => Promise<unknown>;

async function missingMigrations(ask: RunSql, p: string): Promise<readonly Migration[]> {
  const made = (await ask(`SELECT version FROM ${p}migration`).catch((error: unknown) => {
    const { code } = ((error as Error).cause ?? error) as { code?: unknown };
    if (code === 'ER_NO_SUCH_TABLE') return [];
    throw error;
  })) as readonly Row[];
  const versions = new Set(made.map(([version]) => Number(version)));
  const known = migrations(p);
  if ([...versions].some((version) => version > known.length))
    throw new EngineError(
      'The tables of Holdfast in this database are of a newer version of Holdfast. Use that, or another tablePrefix.',
      { retryable: false },
    );
  return known.filter(({ version }) => !versions.has(version));
}

/** At the first use what is optional may be refused. */
async function migrate(
  database: Database,
  p: string,
  { isFirstUse }: { isFirstUse: boolean },
): Promise<readonly string[]> {
  const patienceMs = isFirstUse ? PATIENCE_MS.firstUse : PATIENCE_MS.apply;
  return database.exclusively(`holdfast:schema:${p}`, { patienceMs, withinMs: WITHIN_MS }, async (run) => {
    const made: string[] = [];
    for (const migration of await missingMigrations(run, p)) {
      const refused = await make(migration, run, p);
      if (!refused) made.push(`${migration.version}: ${migration.about}`);
      else if (!migration.optional || !(isFirstUse || refused.isBeyond)) throw refused.error;
      else if (refused.isBeyond) warnBeyond();
    }
    return made;
  });
}

interface Refused {
  readonly error: EngineError;
  /** Not by somebody who may grant the right: the server does not know such statements. */
  readonly isBeyond: boolean;
}

async function make(
  { statements, version, optional }: Migration,
  run: RunSql,
  p: string,
): Promise<Refused | undefined> {
  for (const statement of [migrationTable(p), ...statements, recorded(p, version)]) {
    try {
      await run(statement);
    } catch (error) {
      if (NOT_ALLOWED.has(errnoOf(error))) return { error: notAllowed(statement, error), isBeyond: false };
      if (optional && statements.includes(statement) && isBeyond(error))
        return { error: asEngineError(error), isBeyond: true };
      throw explained(error);
    }
  }
  return undefined;
}

function asEngineError(error: unknown): EngineError {
  const known = explained(error);
  return known instanceof EngineError ? known : new EngineError(known.message, { cause: known });
}

function warnBeyond(): void {
  warnOnce(
    'This server does not take the stored procedures of Holdfast (MySQL does from 8.0.29 on): the strategy ‘queue’ does without, with ' +
      'about nine round trips for each step of a lock instead of one.',
  );
}

function recorded(p: string, version: number): string {
  return `INSERT INTO ${p}migration VALUES (${version}, UTC_TIMESTAMP()) ON DUPLICATE KEY UPDATE version = version`;
}

function notAllowed(statement: string, error: unknown): EngineError {
  const { cause } = explained(error);
  return new EngineError(
    `The database user may not make the tables and routines of Holdfast. Somebody who may has to run \`holdfast schema apply\`, or what ` +
      `\`holdfast schema print\` shows; this statement was refused:`,
    { retryable: false, cause, statement },
  );
}
