/** What we need of mysql2: a pool, its connections, and one statement on one of them. */
import { ConfigError } from '../../../core/errors.js';

export type Value = number | bigint | Buffer | null;

/** A row as an array: an option of the query, so that it does not depend on those of the pool. */
export type Row = readonly unknown[];

export interface RawConnection {
  query(options: object, done: (error: unknown, result: unknown) => void): unknown;
  release(): void;
  destroy(): void;
  on(event: string, listener: (error?: unknown) => void): unknown;
  removeListener(event: string, listener: (error?: unknown) => void): unknown;
}

export interface RawPool {
  getConnection(done: (error: unknown, connection: RawConnection) => void): void;
  end(done: (error?: unknown) => void): void;
  readonly config?: { readonly connectionLimit?: number; readonly resetOnRelease?: boolean };
}

/** Also the pool of 'mysql2/promise', which is one of the others inside. */
export function poolOf(pool: unknown): RawPool {
  const candidates = [pool, (pool as { pool?: unknown } | null)?.pool];
  const raw = candidates.find(
    (candidate): candidate is RawPool & { promise: unknown } =>
      typeof (candidate as { getConnection?: unknown } | undefined)?.getConnection === 'function' &&
      typeof (candidate as { promise?: unknown }).promise === 'function',
  );
  if (raw) return raw;
  throw new ConfigError(
    'mysql() takes a URL like "mysql://user:password@localhost:3306/app", or a pool of mysql2: createPool of "mysql2" or "mysql2/promise".',
  );
}

/**
 * Values are numbers and bytes: bytes are written as hexadecimal literals, which mean the same in every character set and
 * sql_mode. Statements are not prepared, so that proxies that multiplex connections work.
 */
export function send(connection: RawConnection, sql: string, values: readonly Value[] = []): Promise<unknown> {
  return new Promise((resolve, reject) => {
    // The options that a pool may have set otherwise.
    const options = { sql: bound(sql, values), rowsAsArray: true, typeCast: asItIs, nestTables: false };
    connection.query(options, (error, result) => {
      if (error) reject(error);
      else resolve(result);
    });
  });
}

/** A function of the pool's is only put aside by another one. */
function asItIs(_field: unknown, next: () => unknown): unknown {
  return next();
}

/** By ourselves: how mysql2 escapes depends on options of the pool, and it knows no integers of 64 bits. */
function bound(sql: string, values: readonly Value[]): string {
  let at = 0;
  return sql.replaceAll('?', () => {
    const value = values[at++]!;
    if (value === null) return 'NULL';
    return Buffer.isBuffer(value) ? `X'${value.toString('hex')}'` : value.toString();
  });
}

export function bytes(text: string): Buffer {
  return Buffer.from(text);
}

export function text(value: unknown): string {
  return Buffer.isBuffer(value) ? value.toString() : String(value);
}
