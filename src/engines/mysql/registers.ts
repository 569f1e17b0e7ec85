/**
 * Registers: one row each, in the table that all strategies share. A change is one statement, which compares and writes;
 * whether it was refused it says with LAST_INSERT_ID, the only answer that does not depend on flags of the connection.
 * Rows whose time is over go after a write that has one, and with what else is swept.
 */
import type { Fence, Fenced, RegisterEntry, Registers } from '../../core/engine.js';
import { isStale, newest } from '../../core/fence.js';
import { aside } from '../../kit/aside.js';
import type { Database } from './client/database.js';
import { bytes, type Row, text, type Value } from './client/port.js';
import { NOW } from './tables.js';

/** For a token that is bound in each of these places. */
const MAY_WRITE = '(max_write <= ? AND max_read < ?)';
const MAY_READ = '(max_write < ?)';
const FORGOTTEN_AT_ONCE = 100;

export class MysqlRegisters implements Registers {
  readonly #database: Database;
  readonly #namespace: Buffer;
  readonly #table: string;
  readonly #forgetAside = aside(() => this.forget());

  constructor(database: Database, namespace: string, prefix: string) {
    this.#database = database;
    this.#namespace = bytes(namespace);
    this.#table = `${prefix}register`;
  }

  async read(name: string, fence?: Fence): Promise<Fenced<RegisterEntry | undefined>> {
    if (fence) await this.#present(name, fence);
    const row = await this.#row(name);
    if (!row) return { ok: true, value: undefined };
    const [value, token, ageMs, maxRead, maxWrite] = row;
    const [read, wrote] = [BigInt(text(maxRead)), BigInt(text(maxWrite))];
    // Both only grow: whoever is not stale now was not stale when it presented its token.
    if (fence && isStale(fence, read, wrote)) return { ok: false, newest: newest(read, wrote) };
    if (value === null) return { ok: true, value: undefined };
    return { ok: true, value: { value: text(value), token: BigInt(text(token)), ageMs: Number(ageMs) } };
  }

  async write(name: string, value: string, t: bigint, keepMs?: number): Promise<Fenced<void>> {
    const keepUs = keepMs === undefined ? null : keepMs * 1_000;
    // A time and NULL make NULL: for ever.
    const { said } = await this.#database.change(
      `INSERT INTO ${this.#table} (namespace, name, value, token, written, max_read, max_write, kept_until)
        VALUES (?, ?, ?, ?, ${NOW}, 0, ?, ${NOW} + ?)
        ON DUPLICATE KEY UPDATE
          written = IF(${MAY_WRITE}, ${NOW}, written + 0 * LAST_INSERT_ID(1)),
          value = IF(${MAY_WRITE}, ?, value),
          token = IF(${MAY_WRITE}, ?, token),
          kept_until = IF(${MAY_WRITE}, ${NOW} + ?, kept_until),
          max_write = IF(${MAY_WRITE}, ?, max_write)`,
      [...this.#key(name), bytes(value), t, t, keepUs, t, t, t, t, bytes(value), t, t, t, t, t, keepUs, t, t, t],
    );
    if (keepMs !== undefined) this.#forgetAside();
    if (said === 0) return { ok: true, value: undefined };
    // It may have been forgotten since.
    const [, , , maxRead = 0, maxWrite = 0] = (await this.#row(name)) ?? [];
    return { ok: false, newest: newest(BigInt(text(maxRead)), BigInt(text(maxWrite))) };
  }

  /** Deletes those whose time is over, of any namespace. */
  async forget(): Promise<void> {
    while ((await this.#forgetSome()) === FORGOTTEN_AT_ONCE);
  }

  async #forgetSome(): Promise<number> {
    let count = 0;
    // Who is at such a row at this moment is not waited for.
    await this.#database.transaction(
      `SELECT namespace, name FROM ${this.#table} WHERE kept_until <= ${NOW}
        ORDER BY kept_until LIMIT ${FORGOTTEN_AT_ONCE} FOR UPDATE SKIP LOCKED`,
      [],
      (found) => {
        count = found.length;
        const those = found.map(() => '(namespace = ? AND name = ?)').join(' OR ');
        return { sql: `DELETE FROM ${this.#table} WHERE ${those}`, values: found.flat() as Buffer[] };
      },
    );
    return count;
  }

  async #present(name: string, { mode, token: t }: Fence): Promise<void> {
    const insert = `INSERT INTO ${this.#table} (namespace, name, value, token, written, max_read, max_write)
      VALUES (?, ?, NULL, 0, 0, ?, ?) ON DUPLICATE KEY UPDATE`;
    if (mode === 'read')
      await this.#database.change(`${insert} max_read = IF(${MAY_READ}, GREATEST(max_read, ?), max_read)`, [
        ...this.#key(name),
        ...[t, 0, t, t],
      ]);
    else
      await this.#database.change(`${insert} max_write = IF(${MAY_WRITE}, ?, max_write)`, [
        ...this.#key(name),
        ...[0, t, t, t, t],
      ]);
  }

  async #row(name: string): Promise<Row | undefined> {
    const columns = `value, CAST(token AS CHAR), CAST((${NOW} - written) DIV 1000 AS CHAR), CAST(max_read AS CHAR), CAST(max_write AS CHAR)`;
    const sql = `SELECT ${columns} FROM ${this.#table} WHERE namespace = ? AND name = ?`;
    return (await this.#database.rows(sql, this.#key(name)))[0];
  }

  #key(name: string): readonly Value[] {
    return [this.#namespace, bytes(name)];
  }
}
