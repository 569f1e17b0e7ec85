import type { Pool } from 'mysql2';

type Query = (
  options: { readonly sql: string },
  done: (error: unknown, result?: unknown, fields?: unknown) => void,
) => unknown;

/** The same pool, whose connections ask otherwise. */
function wrapped(pool: Pool, otherwise: (query: Query, connection: object) => Query): object {
  // As with every pool, a connection that is lent again is the same one.
  const known = new WeakMap<object, object>();
  const wrap = (connection: object): object => {
    const before = known.get(connection);
    if (before) return before;
    const made = new Proxy(connection, {
      get: (target, name) => {
        const value: unknown = Reflect.get(target, name, target);
        if (typeof value !== 'function') return value;
        const bound = (value as Query).bind(target);
        return name === 'query' ? otherwise(bound, target) : bound;
      },
    });
    known.set(connection, made);
    return made;
  };
  return {
    promise: () => undefined,
    config: { connectionLimit: 10 },
    getConnection: (done: (error: unknown, connection?: object) => void) =>
      pool.getConnection((error, connection) => (error ? done(error) : done(null, wrap(connection)))),
  };
}

/** The same pool, which tells what is about to be sent, and sends it when that has been heard. */
export function overheard(pool: Pool, hear: (statement: string) => Promise<void>): object {
  return wrapped(pool, (query) => (options, done) => void hear(options.sql).then(() => void query(options, done)));
}

/** The same pool, where somebody else answers: rows, or an error; undefined leaves it to the server. */
export function answered(
  pool: Pool,
  answer: (statement: string, connection: object) => readonly unknown[] | Error | undefined,
): object {
  return wrapped(pool, (query, connection) => (options, done) => {
    const said = answer(options.sql, connection);
    if (said === undefined) return query(options, done);
    return setImmediate(() => (said instanceof Error ? done(said) : done(null, said)));
  });
}

/** The same pool, which tells the names of the columns of every answer. */
export function columns(pool: Pool, hear: (names: readonly string[]) => void): object {
  return wrapped(
    pool,
    (query) => (options, done) =>
      query(options, (error, result, fields) => {
        if (Array.isArray(fields))
          hear((fields.flat() as ({ name: string } | undefined)[]).flatMap((field) => field?.name ?? []));
        done(error, result, fields);
      }),
  );
}
