/**
 * Registers, shared by all strategies: one row each, one statement for each call. Tokens are bigint, compared as such.
 * Rows whose time is over go after a write that has one, and with the cleaning of lines.
 */
import type { Fence, Fenced, RegisterEntry, Registers } from '../../core/engine.js';
import { aside } from '../../kit/aside.js';
import type { Database } from './client/database.js';
import type { Names } from '../../sql/postgres-names.js';

export class PostgresRegisters implements Registers {
  readonly #database: Database;
  readonly #namespace: string;
  readonly #statements: ReturnType<typeof statements>;
  /** Not in the transaction of a write: two that delete what the other writes would wait for each other. */
  readonly #forgetAside = aside(() => this.forget());

  constructor(database: Database, names: Names, namespace: string) {
    this.#database = database;
    this.#namespace = namespace;
    this.#statements = statements(names);
  }

  async read(name: string, fence?: Fence): Promise<Fenced<RegisterEntry | undefined>> {
    if (fence) {
      const present = this.#statements[fence.mode === 'read' ? 'presentReader' : 'presentWriter'];
      const [row] = await this.#database.query(present, [this.#namespace, name, `${fence.token}`]);
      return row ? { ok: true, value: entry(row) } : this.#stale(name);
    }
    const [row] = await this.#database.query(this.#statements.get, [this.#namespace, name]);
    return { ok: true, value: row && entry(row) };
  }

  async write(name: string, value: string, token: bigint, keepMs?: number): Promise<Fenced<void>> {
    const values = [this.#namespace, name, `${token}`, Buffer.from(value), keepMs ?? null];
    const [row] = await this.#database.query(this.#statements.set, values);
    if (keepMs !== undefined) this.#forgetAside();
    return row ? { ok: true, value: undefined } : this.#stale(name);
  }

  /** Deletes those whose time is over, of any namespace. */
  async forget(): Promise<void> {
    while ((await this.#database.query(this.#statements.forget)).length === FORGOTTEN_AT_ONCE);
  }

  async #stale(name: string): Promise<{ readonly ok: false; readonly newest: bigint }> {
    const [row] = await this.#database.query(this.#statements.newest, [this.#namespace, name]);
    return { ok: false, newest: BigInt(row?.[0] ?? 0) };
  }
}

const FORGOTTEN_AT_ONCE = 100;

const NOW = 'pg_catalog.clock_timestamp()';
const COLUMNS = `pg_catalog.encode(r.value, 'hex'), r.token::text,
  (extract(epoch FROM ${NOW} - r.written) * 1000)::text`;

/** A statement that presents a token answers no row if it is stale. */
function statements(
  names: Names,
): Record<'get' | 'presentReader' | 'presentWriter' | 'set' | 'newest' | 'forget', string> {
  const register = names.of('register');
  const one = 'namespace = $1 AND name = $2';
  const upsert = (values: string, change: string, fresh: string): string =>
    `INSERT INTO ${register} AS r (namespace, name, value, token, written, max_read, max_write, kept_until)
       VALUES ($1, $2, ${values})
       ON CONFLICT (namespace, name) DO UPDATE SET ${change} WHERE ${fresh}
       RETURNING ${COLUMNS}, ${names.of('durable')}()`;
  const writerIsFresh = 'r.max_write <= excluded.max_write AND r.max_read < excluded.max_write';
  return {
    get: `SELECT ${COLUMNS} FROM ${register} r WHERE ${one}`,
    presentReader: upsert(
      `NULL, 0, ${NOW}, $3, 0, NULL`,
      `max_read = greatest(r.max_read, excluded.max_read)`,
      `r.max_write < excluded.max_read`,
    ),
    presentWriter: upsert(`NULL, 0, ${NOW}, 0, $3, NULL`, `max_write = excluded.max_write`, writerIsFresh),
    set: upsert(
      `$4, $3, ${NOW}, 0, $3, ${NOW} + $5 * interval '1 millisecond'`,
      `value = excluded.value, token = excluded.token, written = excluded.written, max_write = excluded.max_write,
         kept_until = excluded.kept_until`,
      writerIsFresh,
    ),
    newest: `SELECT greatest(max_read, max_write)::text FROM ${register} WHERE ${one}`,
    // now(), not clock_timestamp(): for that no index is used.
    forget: `DELETE FROM ${register} WHERE ctid = ANY (ARRAY(
      SELECT ctid FROM ${register} WHERE kept_until <= pg_catalog.now() ORDER BY kept_until LIMIT ${FORGOTTEN_AT_ONCE}
        FOR UPDATE SKIP LOCKED)) RETURNING 1`,
  };
}

function entry([value, token, ageMs]: readonly (string | null)[]): RegisterEntry | undefined {
  if (value === null || value === undefined) return undefined;
  return { value: Buffer.from(value, 'hex').toString(), token: BigInt(token!), ageMs: Number(ageMs) };
}
