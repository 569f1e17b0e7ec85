/**
 * The proof that the server's advisory locks exclude, made with several connections before the first session. There are
 * servers whose locks are stubs that always say yes (CockroachDB), and proxies that send each statement, or each connection,
 * to another server. There two would hold in silence.
 *
 *     holder   takes a key that nobody else knows        ┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄  frees it
 *     others                                       try: all must be refused            try: one must get it
 *
 * Keys are random, so that any number of processes may do this at once.
 */
import { randomBytes } from 'node:crypto';
import { ConfigError, EngineError } from '../../core/errors.js';
import { warnOnce } from '../../kit/warn-once.js';
import { BEGIN, type Database, type PgPool, type Run, within } from './client/database.js';
import { isMissing } from './client/errors.js';

/** One connection. */
interface Party {
  take(key: string): Promise<unknown>;
  free(key: string): Promise<unknown>;
  /** Whether it would get it. It keeps nothing. */
  tries(key: string): Promise<boolean>;
}

/** More than one: a proxy that chooses among servers at random may choose the same one by chance. */
const ROUNDS = 2;

/** `queue`: its steps go over the pool, and its beats over a connection beside it. False where it can't be proven, with a warning. */
export function proveTransactionLocks(database: Database): Promise<boolean> {
  return once(database, 'transaction', async () => {
    if (isTooSmall(database)) return warnUnproven('the pool has one connection');
    try {
      await onFour(database, (inPool, beside) => {
        const [holder, ...others] = [...inPool, ...beside].map(ofTransaction);
        return prove(holder!, others, database.limitMs);
      });
      return true;
    } catch (error) {
      if (!(error instanceof EngineError) || !error.retryable) throw error;
      return warnUnproven(error.message);
    }
  });
}

/** `advisory`: each session has its locks on a connection beside the pool, and its registers in the pool. */
export function proveSessionLocks(database: Database): Promise<boolean> {
  return once(database, 'session', async () => {
    if (isTooSmall(database))
      throw new ConfigError(
        'postgres: the strategy advisory proves with two connections that the locks of the server exclude, and the pool has one. Give it more (max).',
      );
    await onFour(database, (inPool, beside) => {
      const [holder, other] = beside.map(ofSession);
      return prove(holder!, [other!, ...inPool.map(ofTransaction)], database.limitMs);
    });
    return true;
  });
}

/** Two connections of the pool and two beside it: the more there are, the less likely they lead to one server by chance. */
function onFour(
  database: Database,
  work: (inPool: readonly Run[], beside: readonly Run[]) => Promise<void>,
): Promise<void> {
  const proof = database.both((a, b) => database.beside((c) => database.beside((d) => work([a, b], [c, d]))));
  return within(database.limitMs, proof);
}

/** Instances that share a pool share the proof. One at a time: two that each have one connection would wait for each other. */
const proofs = new WeakMap<PgPool, Map<string, Promise<boolean>>>();

function once({ pool }: Database, kind: string, make: () => Promise<boolean>): Promise<boolean> {
  const known = proofs.get(pool) ?? new Map<string, Promise<boolean>>();
  proofs.set(pool, known);
  const before = known.get(kind);
  if (before) return before;
  const proof = Promise.allSettled(known.values()).then(make);
  known.set(kind, proof);
  // Who asks next tries again.
  proof.then(
    (proven) => proven || known.delete(kind),
    () => known.delete(kind),
  );
  return proof;
}

function isTooSmall({ pool }: Database): boolean {
  return (pool.options.max ?? 10) < 2;
}

async function prove(holder: Party, others: readonly Party[], limitMs: number): Promise<void> {
  try {
    for (let round = 0; round < ROUNDS; round += 1) {
      const key = randomBytes(8).readBigInt64BE().toString();
      try {
        await holder.take(key);
        const got = await within(limitMs, Promise.all(others.map((other) => other.tries(key))));
        if (got.includes(true)) throw unsound('two connections had the same lock at once');
      } finally {
        await holder.free(key);
      }
      if (!(await others[0]!.tries(key))) throw unsound('a lock that was freed could not be had');
    }
  } catch (error) {
    if (isMissing(error)) throw unsound('it lacks a function of theirs');
    throw error;
  }
}

function unsound(what: string): ConfigError {
  return new ConfigError(
    `postgres: the advisory locks of this server do not exclude (${what}). Either it has none (CockroachDB), or a proxy sends ` +
      'our connections to several servers. Connect to one PostgreSQL itself.',
  );
}

function ofTransaction(run: Run): Party {
  return {
    take: async (key) => {
      await run(BEGIN);
      await run('SELECT pg_catalog.pg_advisory_xact_lock($1)', [key]);
    },
    free: () => run('ROLLBACK'),
    tries: (key) => answersYes(run, 'SELECT pg_catalog.pg_try_advisory_xact_lock($1)::text', key),
  };
}

function ofSession(run: Run): Party {
  const take = (key: string): Promise<boolean> =>
    answersYes(run, 'SELECT pg_catalog.pg_try_advisory_lock($1)::text', key);
  const free = (key: string): Promise<unknown> => run('SELECT pg_catalog.pg_advisory_unlock($1)', [key]);
  const tries = async (key: string): Promise<boolean> => {
    const got = await take(key);
    if (got) await free(key);
    return got;
  };
  return { take, free, tries };
}

async function answersYes(run: Run, text: string, key: string): Promise<boolean> {
  const [row] = await run(text, [key]);
  return row?.[0] === 'true';
}

function warnUnproven(why: string): false {
  warnOnce(
    `PostgreSQL: it could not be proven that advisory locks exclude here, which needs two connections at once (${why}). ` +
      'They do unless the server is not PostgreSQL itself, or a proxy sends connections to several servers.',
  );
  return false;
}
