/**
 * Makes and checks the tables and routines, by numbered migrations. Several processes may start at once: whoever gets the
 * server's lock of this name makes them, the others wait and find them made. Every statement may be repeated, because
 * the server commits each of them at once: a migration that was cut short is done again from its beginning.
 *
 *     migration   one row for each migration that was made
 */
import { EngineError } from '../../core/errors.js';
import type { Schema } from '../../core/schema.js';
import type { Database, Row } from './client.js';
import { queueProcedures, queueTables } from './queue-sql.js';
import { downgradeTable, registerTables, slotTables } from './tables.js';
import { errnoOf, explained } from './trouble.js';

interface Migration {
  readonly version: number;
  readonly about: string;
  readonly statements: readonly string[];
}

function migrations(p: string): readonly Migration[] {
  return [
    { version: 1, about: 'registers', statements: registerTables(p) },
    { version: 2, about: 'the queue', statements: [...queueTables(p), ...queueProcedures(p)] },
    { version: 3, about: 'one row for each lock', statements: slotTables(p) },
    { version: 4, about: 'readers that were writers', statements: [downgradeTable(p)] },
  ];
}

const migrationTable = (p: string): string => `CREATE TABLE IF NOT EXISTS ${p}migration (
  version  INT NOT NULL PRIMARY KEY,
  made     DATETIME NOT NULL
) ENGINE = InnoDB`;

/** DDL may wait for others who do the same. */
const WITHIN_MS = 30_000;
const NOT_ALLOWED = new Set([1044, 1142, 1227, 1370, 1419]);

/** At the first use: one question if all is there. */
export async function ensureSchema(database: Database, prefix: string, mayMigrate: boolean): Promise<void> {
  const missing = await missingMigrations((sql) => database.rows(sql, []), prefix);
  if (missing.length === 0) return;
  if (mayMigrate) await migrate(database, prefix);
  else
    throw new EngineError(
      `The tables of Holdfast are not up to date in this database, and migrate is false. ${howTo(missing[0]!)}`,
      { retryable: false },
    );
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
    return migrate(await this.#database, this.#prefix);
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

async function migrate(database: Database, p: string): Promise<readonly string[]> {
  return database.exclusively(`holdfast:schema:${p}`, WITHIN_MS, async (run) => {
    const missing = await missingMigrations(run, p);
    for (const migration of missing) {
      for (const statement of [migrationTable(p), ...migration.statements, recorded(p, migration.version)])
        await run(statement).catch((error: unknown) => {
          throw NOT_ALLOWED.has(errnoOf(error)) ? notAllowed(statement, error) : explained(error);
        });
    }
    return missing.map(({ version, about }) => `${version}: ${about}`);
  });
}

function recorded(p: string, version: number): string {
  return `INSERT INTO ${p}migration VALUES (${version}, UTC_TIMESTAMP()) ON DUPLICATE KEY UPDATE version = version`;
}

function notAllowed(statement: string, error: unknown): EngineError {
  const { cause } = explained(error);
  return new EngineError(
    `The database user may not make the tables of Holdfast. Somebody who may has to run \`holdfast schema apply\`, or what ` +
      `\`holdfast schema print\` shows; this statement was refused:\n${statement}`,
    { retryable: false, cause },
  );
}

function howTo({ statements }: Migration): string {
  return `Run \`holdfast schema apply\`, or what \`holdfast schema print\` shows; the first statement that is missing:\n${statements[0]}`;
}
