/**
 * The resource's half of fencing: what you write to refuses a holder who was overtaken. See docs/fencing.md.
 *
 *     await fence(pool).transaction('account:1', lease, async (tx) => {
 *       // StaleTokenError if the lease was overtaken; else nobody else is at this account until it ends
 *       await tx.query('UPDATE account SET balance = balance - 5 WHERE id = 1');
 *     });
 */
import { isIoredis } from '../engines/redis/client/ioredis.js';
import { isNodeRedis } from '../engines/redis/client/node-redis.js';
import { isSqlite, type SqliteDatabase } from '../sql/sqlite.js';
import { RedisFence, type RedisFenceOptions } from './redis.js';
import { SqlFence, type SqlFenceOptions } from './sql.js';
import { SqliteFence } from './sqlite.js';

/** A client of ioredis, iovalkey or node-redis. */
interface RedisClient {
  eval(...args: never[]): unknown;
  subscribe(...args: never[]): unknown;
}

/** What a fence is depends on what it stands in. Not overloads: TypeScript would prefer the least specific one. */
export type FenceOn<D extends object> = D extends RedisClient
  ? RedisFence
  : D extends SqliteDatabase
    ? SqliteFence<D>
    : SqlFence<D>;
export type FenceOptions<D extends object> = D extends RedisClient ? RedisFenceOptions : SqlFenceOptions;

/**
 * A fence on a database of yours: a connection of `pg` or mysql2 that is in a transaction, a database of node:sqlite or
 * better-sqlite3, a client of Redis, or `{ dialect, query }` for the transaction of any other library. On a pool only
 * `transaction` works: a fence outside of the transaction that it guards protects nothing.
 */
export function fence<D extends object>(db: D, options?: FenceOptions<D>): FenceOn<D> {
  return make(db, options ?? {}) as FenceOn<D>;
}

function make(db: object, options: RedisFenceOptions & SqlFenceOptions): RedisFence | SqliteFence | SqlFence {
  if (isRedis(db)) return new RedisFence(db, options);
  if (isSqliteDatabase(db)) return new SqliteFence(db, options);
  return new SqlFence(db, options);
}

function isRedis(db: unknown): db is object {
  return typeof db === 'object' && db !== null && (isIoredis(db) || isNodeRedis(db));
}

function isSqliteDatabase(db: unknown): db is SqliteDatabase {
  return typeof db === 'object' && db !== null && isSqlite(db);
}

export { fencedFetch, TOKEN_HEADER, tokenHeaders } from './header.js';
export { type FenceStore, HttpFence, httpFence, type HttpFenceOptions, type ShownToken } from './http.js';
export type { NodeRequest, NodeResponse } from './at-work.js';
export { fencedScript } from './lua.js';
export type { OpenOptions, Resources, Shown } from './presented.js';
export type { OpenRedisFence, RedisFence, RedisFenceOptions } from './redis.js';
export { migrate, type SqlFence, type SqlFenceOptions } from './sql.js';
export type { SqliteFence } from './sqlite.js';
export type { TableOptions } from './table.js';
export type { TransactionOn } from './transaction.js';
export type { SqlAdapter } from '../sql/port.js';
