/** Registers, shared by all strategies: one row each, one statement for each call. Tokens are bigint, compared as such. */
import type { Fence, Fenced, RegisterEntry, Registers } from '../../core/engine.js';
import type { Database } from './database.js';
import type { Names } from '../../sql/postgres-names.js';

export class PostgresRegisters implements Registers {
  readonly #database: Database;
  readonly #namespace: string;
  readonly #statements: ReturnType<typeof statements>;

  constructor(database: Database, names: Names, namespace: string) {
    this.#database = database;
    this.#namespace = namespace;
    this.#statements = statements(names.of('register'));
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

  async write(name: string, value: string, token: bigint): Promise<Fenced<void>> {
    const values = [this.#namespace, name, `${token}`, Buffer.from(value)];
    const [row] = await this.#database.query(this.#statements.set, values);
    return row ? { ok: true, value: undefined } : this.#stale(name);
  }

  async #stale(name: string): Promise<{ readonly ok: false; readonly newest: bigint }> {
    const [row] = await this.#database.query(this.#statements.newest, [this.#namespace, name]);
    return { ok: false, newest: BigInt(row?.[0] ?? 0) };
  }
}

const COLUMNS = `encode(r.value, 'hex'), r.token,
  greatest(0, extract(epoch FROM clock_timestamp() - r.written) * 1000)`;

/** A statement that presents a token answers no row if it is stale. */
function statements(register: string): Record<'get' | 'presentReader' | 'presentWriter' | 'set' | 'newest', string> {
  const one = 'namespace = $1 AND name = $2';
  const upsert = (values: string, change: string, fresh: string): string =>
    `INSERT INTO ${register} AS r (namespace, name, value, token, written, max_read, max_write)
       VALUES ($1, $2, ${values})
       ON CONFLICT (namespace, name) DO UPDATE SET ${change} WHERE ${fresh}
       RETURNING ${COLUMNS}`;
  const writerIsFresh = 'r.max_write <= excluded.max_write AND r.max_read < excluded.max_write';
  return {
    get: `SELECT ${COLUMNS} FROM ${register} r WHERE ${one}`,
    presentReader: upsert(
      `NULL, 0, clock_timestamp(), $3, 0`,
      `max_read = greatest(r.max_read, excluded.max_read)`,
      `r.max_write < excluded.max_read`,
    ),
    presentWriter: upsert(`NULL, 0, clock_timestamp(), 0, $3`, `max_write = excluded.max_write`, writerIsFresh),
    set: upsert(
      `$4, $3, clock_timestamp(), 0, $3`,
      `value = excluded.value, token = excluded.token, written = excluded.written, max_write = excluded.max_write`,
      writerIsFresh,
    ),
    newest: `SELECT greatest(max_read, max_write) FROM ${register} WHERE ${one}`,
  };
}

function entry([value, token, ageMs]: readonly (string | null)[]): RegisterEntry | undefined {
  if (value === null || value === undefined) return undefined;
  return { value: Buffer.from(value, 'hex').toString(), token: BigInt(token!), ageMs: Number(ageMs) };
}
