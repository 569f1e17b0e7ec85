import type { Pool } from 'mysql2';

/** The same pool, which tells what is about to be sent, and sends it when that has been heard. */
export function overheard(pool: Pool, hear: (statement: string) => Promise<void>): object {
  type Query = (options: { readonly sql: string }, done: (error: unknown, result?: unknown) => void) => unknown;
  const wrapped = (connection: object): object =>
    new Proxy(connection, {
      get: (target, name) => {
        const value: unknown = Reflect.get(target, name, target);
        if (typeof value !== 'function') return value;
        if (name !== 'query') return (value as () => unknown).bind(target);
        const query: Query = (options, done) =>
          void hear(options.sql).then(() => void (value as Query).call(target, options, done));
        return query;
      },
    });
  return {
    promise: () => undefined,
    config: { connectionLimit: 10 },
    getConnection: (done: (error: unknown, connection?: object) => void) =>
      pool.getConnection((error, connection) => (error ? done(error) : done(null, wrapped(connection)))),
  };
}
