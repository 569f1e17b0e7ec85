/** What the tests of the PostgreSQL engine have in common: one server for a file, and instances that are closed after each test. */
import { Pool, type PoolConfig } from 'pg';
import { afterAll, afterEach, beforeAll } from 'vitest';
import { postgres, type PostgresOptions } from '../../../src/engines/postgres/index.js';
import { Holdfast, type HoldfastOptions } from '../../../src/index.js';
import { FaultProxy } from '../../servers/fault-proxy.js';
import { type PostgresOptions as ServerSettings, sql, startPostgres } from '../../servers/postgres.js';
import type { Server } from '../../servers/server.js';

export class Kit {
  server!: Server;
  readonly #closing: (() => Promise<unknown>)[] = [];
  readonly #proxies: FaultProxy[] = [];

  constructor(settings: ServerSettings = {}) {
    beforeAll(async () => {
      this.server = await startPostgres(settings);
    });
    afterEach(async () => {
      // First: what is closed after them must not wait for an answer that they keep back.
      for (const proxy of this.#proxies.splice(0)) await proxy[Symbol.asyncDispose]();
      for (const close of this.#closing.splice(0).toReversed()) await close();
    });
    afterAll(() => this.server.stop());
  }

  get url(): string {
    return `postgres://postgres@127.0.0.1:${this.server.port}/postgres`;
  }

  /** A URL whose network can be made a bad one. */
  async throughProxy(): Promise<{ proxy: FaultProxy; url: string }> {
    const proxy = await FaultProxy.start(this.server.port);
    this.#proxies.push(proxy);
    return { proxy, url: this.url.replace(`:${this.server.port}/`, `:${proxy.port}/`) };
  }

  pool(options: PoolConfig = {}): Pool {
    const pool = new Pool({
      host: '127.0.0.1',
      port: this.server.port,
      user: 'postgres',
      database: 'postgres',
      ...options,
    });
    pool.on('error', () => {});
    this.#closing.push(() => pool.end());
    return pool;
  }

  locks(
    source: string | Pool = this.url,
    options: PostgresOptions & Pick<HoldfastOptions, 'ttl' | 'namespace'> = {},
  ): Holdfast {
    const { ttl = '10s', namespace = 'holdfast', ...engine } = options;
    const locks = new Holdfast(postgres(source, engine), { ttl, namespace });
    this.#closing.push(() => locks.close());
    return locks;
  }

  sql<Row = Record<string, unknown>>(text: string, values?: unknown[]): Promise<Row[]> {
    return sql<Row>(this.server.port, text, values);
  }

  async count(table: string, condition = 'true'): Promise<number> {
    const [row] = await this.sql<{ count: string }>(
      `SELECT count(*) FROM holdfast.holdfast_${table} WHERE ${condition}`,
    );
    return Number(row!.count);
  }

  /** Ends every connection but the one that asks. */
  async endConnections(): Promise<void> {
    await this.sql(
      `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()`,
    );
  }
}
