/**
 * Whether the server's own locks exclude here, tried with two connections before any lock rests on them. Behind a proxy that
 * spreads connections over several servers they do not, nor where a server knows the words and only says yes.
 *
 * What is tried has a random name, so that many who try at once do not meet, and leaves nothing behind.
 */
import { randomBytes } from 'node:crypto';
import { ConfigError, EngineError } from '../../../core/errors.js';
import { clearTimeout, setTimeout } from '../../../core/real-time.js';
import type { Connections, Lent } from '../client/connections.js';
import { errnoOf, explained } from '../client/errors.js';
import { bytes, type RawConnection, type RawPool, type Row, send } from '../client/port.js';

/** Where the two connections come from: it may be the same pool. */
export interface TwoPools {
  readonly first: Connections;
  readonly second: Connections;
}

/** Locks on one connection, and tells whether that keeps another from it. */
type Trial = (first: RawConnection, second: RawConnection) => Promise<boolean>;

/** By pool. Of two who have one connection each and wait for another, none would get it. */
const TURNS = new WeakMap<RawPool, Promise<unknown>>();

export async function proveExclusion(strategy: string, pools: TwoPools, trial: Trial, withinMs: number): Promise<void> {
  const { pool } = pools.first;
  if (pool === pools.second.pool && pool.config?.connectionLimit === 1)
    throw new ConfigError(
      `The strategy '${strategy}' needs a connection for each lock, and another beside them: a pool with connectionLimit 1 can't give that.`,
    );
  const proof = (TURNS.get(pool) ?? Promise.resolve()).then(() => attempt(pools, trial, withinMs));
  const over = proof.catch(() => {});
  TURNS.set(pool, over);
  if (await proof) return;
  throw new ConfigError(
    `The strategy '${strategy}' rests on locks of the server, and here two connections had the same one at once. Either a proxy ` +
      "sends them to several servers, or the server has no such locks. Connect to one server, or use the strategy 'queue'.",
  );
}

async function attempt({ first, second }: TwoPools, trial: Trial, withinMs: number): Promise<boolean> {
  const lent: Lent[] = [];
  let late = false;
  const work = async (): Promise<boolean> => {
    for (const connections of [first, second]) {
      const one = await connections.take(() => late);
      lent.push(one);
      await one.prepare();
    }
    return trial(lent[0]!.connection, lent[1]!.connection);
  };
  let timer: NodeJS.Timeout | undefined;
  const silence = new Promise<never>((_resolve, reject) => {
    timer = setTimeout(() => {
      late = true;
      reject(new EngineError(lent.length < 2 ? NO_SECOND : 'The database did not answer in time.'));
    }, withinMs);
  });
  try {
    const excludes = await Promise.race([work(), silence]);
    for (const one of lent) one.giveBack(withinMs);
    return excludes;
  } catch (error) {
    // Nobody knows what is on them.
    for (const one of lent) {
      one.failed(error);
      one.destroy();
    }
    throw explained(error);
  } finally {
    clearTimeout(timer);
  }
}

const NO_SECOND =
  'No two connections to the database became free in time, which this strategy needs. Raise connectionLimit, or give Holdfast a pool of its own.';

export async function getLockExcludes(first: RawConnection, second: RawConnection): Promise<boolean> {
  const name = bytes(`hf_${randomBytes(16).toString('hex')}`);
  const take = async (connection: RawConnection): Promise<boolean> => {
    const [row] = (await send(connection, 'SELECT GET_LOCK(?, 0) AS got', [name])) as readonly Row[];
    return Number(row?.[0]) === 1;
  };
  const [has, hasToo] = [await take(first), await take(second)];
  for (const connection of [first, second]) await send(connection, 'SELECT RELEASE_LOCK(?) AS freed', [name]);
  return has && !hasToo;
}

/** A wait for a row that took too long; a row that others have, asked for with NOWAIT. */
const BUSY = new Set([1205, 3572]);

/** A row that is never committed is a row that is locked. */
export function rowLocksExclude(prefix: string): Trial {
  return async (first, second) => {
    const key = [bytes(''), randomBytes(16)];
    for (const connection of [first, second]) await send(connection, 'START TRANSACTION');
    await send(first, `INSERT INTO ${prefix}latch VALUES (?, ?, X'', 0, 0)`, key);
    const find = `SELECT 1 AS found FROM ${prefix}latch WHERE namespace = ? AND name = ? FOR UPDATE NOWAIT`;
    const isBusy = await send(second, find, key).then(
      () => false,
      (error: unknown) => {
        if (BUSY.has(errnoOf(error))) return true;
        throw error;
      },
    );
    for (const connection of [first, second]) await send(connection, 'ROLLBACK');
    return isBusy;
  };
}
