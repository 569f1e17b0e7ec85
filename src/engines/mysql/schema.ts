/**
 * Makes and checks the tables and routines, by numbered migrations. Several processes may start at once: whoever gets the
 * server's lock of this name makes them, the others wait and find them made. Every statement may be repeated, because
 * the server commits each of them at once: a migration that was cut short is done again from its beginning.
 *
 *     migration   one row for each migration that was made
 */
import { EngineError } from '../../core/errors.js';
import type { Schema } from '../../kit/schema.js';
import type { Database, Row } from './client/database.js';
import { procedureSteps, queueProcedures, queueTables } from './queue/protocol.js';
import { mysqlFenceTable } from '../../sql/fence-table.js';
import { downgradeTable, registerTables, slotTables } from './tables.js';
import { errnoOf, explained } from './client/errors.js';

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
    { version: 5, about: 'the steps of the queue', statements: queueProcedures(p), optional: true },
    { version: 6, about: 'fences', statements: [mysqlFenceTable(p)] },
  ];
}

const migrationTable = (p: string): string => `CREATE TABLE IF NOT EXISTS ${p}migration (
  version  INT NOT NULL PRIMARY KEY,
  made     DATETIME NOT NULL
) ENGINE = InnoDB`;

/** DDL may wait for others who do the same. */
const WITHIN_MS = 30_000;
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
  const missing = await missingMigrations((sql) => database.rows(sql, []), prefix);
  const needed = missing.find(({ optional }) => !optional);
  if (mayMigrate && (needed || (procedures && missing.length > 0))) await migrate(database, prefix, { mayFail: true });
  else if (needed)
    throw new EngineError(
      `The tables of Holdfast are not up to date in this database, and migrate is false. ${howTo(needed)}`,
      { retryable: false },
    );
}

/** Whether the user may call the procedures of the queue, and they are there: asked by a beat of nobody. */
export async function hasProcedures(database: Database, prefix: string): Promise<boolean> {
  const nobody = Buffer.alloc(0);
  try {
    await procedureSteps(database, prefix)('beat_1', [nobody, nobody, nobody], {});
    return true;
  } catch (error) {
    const { code } = ((error as Error).cause ?? {}) as { code?: string };
    if (code === 'ER_SP_DOES_NOT_EXIST' || code === 'ER_PROCACCESS_DENIED_ERROR') return false;
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
    return migrate(await this.#database, this.#prefix, { mayFail: false });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await (await this.#database?.catch(() => undefined))?.close();
  }
}

/** For the command line of mysql: a procedure has semicolons of its own. */
function terminated(statement: string): string {
  return statement.startsWith('CREATE PROCEDURE') ? `DELIMITER //\n${statement} //\nDELIMITER ;` : `${statement};`;
}

type Ask = (sql: string) => Promise<unknown>;

async function missingMigrations(ask: Ask, p: string): Promise<readonly Migration[]> {
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

/** @param mayFail whether what is optional may be refused. */
async function migrate(database: Database, p: string, { mayFail }: { mayFail: boolean }): Promise<readonly string[]> {
  return database.exclusively(`holdfast:schema:${p}`, WITHIN_MS, async (run) => {
    const made: string[] = [];
    for (const migration of await missingMigrations(run, p)) {
      const refused = await make(migration, run, p);
      if (!refused) made.push(`${migration.version}: ${migration.about}`);
      else if (!(mayFail && migration.optional)) throw refused;
    }
    return made;
  });
}

/** Answers what to say if the user may not do it. */
async function make({ statements, version }: Migration, run: Ask, p: string): Promise<EngineError | undefined> {
  for (const statement of [migrationTable(p), ...statements, recorded(p, version)]) {
    try {
      await run(statement);
    } catch (error) {
      if (NOT_ALLOWED.has(errnoOf(error))) return notAllowed(statement, error);
      throw explained(error);
    }
  }
  return undefined;
}

function recorded(p: string, version: number): string {
  return `INSERT INTO ${p}migration VALUES (${version}, UTC_TIMESTAMP()) ON DUPLICATE KEY UPDATE version = version`;
}

function notAllowed(statement: string, error: unknown): EngineError {
  const { cause } = explained(error);
  return new EngineError(
    `The database user may not make the tables and routines of Holdfast. Somebody who may has to run \`holdfast schema apply\`, or what ` +
      `\`holdfast schema print\` shows; this statement was refused:\n${statement}`,
    { retryable: false, cause },
  );
}

function howTo({ statements }: Migration): string {
  return `Run \`holdfast schema apply\`, or what \`holdfast schema print\` shows; the first statement that is missing:\n${statements[0]}`;
}
