/**
 * The whole of it, in one line: begin, open the fence, do the work, commit; or roll back.
 *
 * A connection has one transaction at a time. So those on one connection, or on one database of SQLite, take turns; and one that is
 * begun inside of another would wait for itself, and is refused.
 */
import { AsyncLocalStorage } from 'node:async_hooks';
import { ConfigError, EngineError } from '../core/errors.js';
import type { SqlPort } from '../sql/port.js';

/** What the function is called with: a connection of the pool, or what the fence stands on. */
export type TransactionOn<D extends object> = D extends { connect: PgConnect<infer Client> }
  ? Client
  : D extends { getConnection(): Promise<infer Connection> }
    ? Connection
    : D extends { getConnection: MysqlConnect<infer Connection> }
      ? Connection
      : D;

/** Of a pool of `pg`; that of a client gives nothing. */
interface PgConnect<Client extends { release(...args: never[]): unknown }> {
  (): Promise<Client>;
  (then: never): void;
}
/** Of a pool of mysql2 with callbacks. */
type MysqlConnect<Connection> = (then: (error: never, connection: Connection) => unknown) => void;

interface TransactionSteps<T> {
  /** Makes what `open` needs, before there is a transaction that would be held up by it. */
  readonly prepare: () => Promise<void> | void;
  readonly open: () => Promise<void> | void;
  readonly work: () => T | PromiseLike<T>;
}

/** SQLite: whoever begins by reading may find later that it can't write. */
const BEGIN = { postgres: 'BEGIN', mysql: 'START TRANSACTION', sqlite: 'BEGIN IMMEDIATE' };

interface TransactionFrame {
  readonly on: object;
  readonly outer: TransactionFrame | undefined;
  isOver: boolean;
}

const frames = new AsyncLocalStorage<TransactionFrame>();
const lastTurns = new WeakMap<object, Promise<unknown>>();

/** @param db whoever hands in the same takes turns. */
export async function inTransaction<T>(db: object, port: SqlPort, steps: TransactionSteps<T>): Promise<T> {
  const outer = frames.getStore();
  for (let frame = outer; frame; frame = frame.outer) if (frame.on === db && !frame.isOver) throw insideAnother();
  const frame: TransactionFrame = { on: db, outer, isOver: false };
  const before = lastTurns.get(db) ?? Promise.resolve();
  const turn = before.then(() => transact(port, { ...steps, work: () => frames.run(frame, steps.work) }));
  const over = turn.then(
    () => {},
    () => {},
  );
  lastTurns.set(db, over);
  void over.then(() => (frame.isOver = true));
  return turn;
}

async function transact<T>(port: SqlPort, { prepare, open, work }: TransactionSteps<T>): Promise<T> {
  if (!port.commit)
    throw new ConfigError(
      'An adapter runs statements, and can’t begin a transaction. Use that of its library, and open the fence inside of it.',
    );
  if (await port.isInTransaction()) throw insideAnother();
  await prepare();
  await port.exec(BEGIN[port.dialect]);
  try {
    await open();
    const value = await work();
    if ((await port.isInTransaction()) === false) throw overTooEarly();
    await port.commit();
    return value;
  } catch (error) {
    await port.exec('ROLLBACK').catch(() => {
      // There is none any more, or no connection. What is thrown says why.
    });
    throw error;
  }
}

function insideAnother(): ConfigError {
  return new ConfigError(
    'This connection is in a transaction already. Open the fence in that one: fence(connection).open(resource, lease).',
  );
}

function overTooEarly(): EngineError {
  return new EngineError(
    'The transaction was over before its function had ended: it was committed or rolled back there, by a statement of its own (on MySQL ' +
      'also DDL) or by the server (a deadlock whose error was not thrown on). What came after it stood outside of the fence.',
    { retryable: false },
  );
}
