/**
 * The connections of a pool, lent one at a time: set as our statements need it (settings.ts), and of the server that is the
 * primary now (tenure.ts). What goes back to a pool of the user's is set as it was.
 */
import { EngineError } from '../../../core/errors.js';
import { clearTimeout, setTimeout } from '../../../core/real-time.js';
import { isReadOnly, isTransient } from './errors.js';
import type { RawConnection, RawPool } from './port.js';
import { oddSettings, set, type Settings, settingsOf } from './settings.js';
import type { Tenure } from './tenure.js';

/** How a connection is set while nobody uses it. */
const AT_REST = new WeakMap<RawConnection, Settings>();

/** A connection that does not answer keeps nobody from ending. */
const END_WITHIN_MS = 1_000;

export class Connections {
  readonly pool: RawPool;
  readonly owned: boolean;
  readonly tenure: Tenure;
  /** Of ours, for nobody else knows them. */
  readonly #idle = new Set<RawConnection>();
  readonly #met = new WeakSet<RawConnection>();
  readonly #out = new Set<RawConnection>();

  constructor(pool: RawPool, owned: boolean, tenure: Tenure) {
    this.pool = pool;
    this.owned = owned;
    this.tenure = tenure;
    tenure.onEnd(() => this.#leaveIdle());
  }

  /** How a connection is set may change whenever it is released: then it is asked each time. */
  get remembers(): boolean {
    return this.pool.config?.resetOnRelease !== true;
  }

  /** @param isAbandoned whether nobody waits for it any more. */
  async take(isAbandoned: () => boolean): Promise<Lent> {
    for (;;) {
      if (isAbandoned()) throw new EngineError(SILENT);
      const connection = await this.#next();
      this.#meet(connection);
      if (isAbandoned()) this.#release(connection);
      else if (this.tenure.has(connection)) {
        this.#out.add(connection);
        return new Lent(connection, this);
      } else connection.destroy();
    }
  }

  giveBack(connection: RawConnection): void {
    // A pool that gets one connection twice hands it to two.
    if (!this.#out.delete(connection)) return;
    if (this.tenure.has(connection)) this.#release(connection);
    else connection.destroy();
  }

  destroy(connection: RawConnection): void {
    this.#out.delete(connection);
    AT_REST.delete(connection);
    connection.destroy();
  }

  async end(): Promise<void> {
    if (!this.owned) return;
    let timer: NodeJS.Timeout | undefined;
    const ended = new Promise<void>((resolve) => this.pool.end(() => resolve()));
    // It would wait for the answer to what is being asked on each of them.
    const late = new Promise<void>((resolve) => (timer = setTimeout(resolve, END_WITHIN_MS)));
    await Promise.race([ended, late]);
    clearTimeout(timer);
    for (const connection of this.#out) connection.destroy();
  }

  #next(): Promise<RawConnection> {
    return new Promise((resolve, reject) => {
      this.pool.getConnection((error, connection) => {
        if (error) reject(error);
        else resolve(connection);
      });
    });
  }

  #meet(connection: RawConnection): void {
    this.#idle.delete(connection);
    if (!this.owned || this.#met.has(connection)) return;
    this.#met.add(connection);
    for (const event of ['end', 'error']) connection.on(event, () => this.#idle.delete(connection));
  }

  #release(connection: RawConnection): void {
    if (this.owned) this.#idle.add(connection);
    connection.release();
  }

  /** A user's pool may have lent them to somebody else by now. */
  #leaveIdle(): void {
    for (const connection of this.#idle) connection.destroy();
    this.#idle.clear();
  }
}

/** A connection in our hands. */
export class Lent {
  readonly connection: RawConnection;
  readonly #connections: Connections;
  /** What has to be put back. */
  #theirs: Settings = {};
  #over = false;

  constructor(connection: RawConnection, connections: Connections) {
    this.connection = connection;
    this.#connections = connections;
  }

  get owned(): boolean {
    return this.#connections.owned;
  }

  get tenure(): Tenure {
    return this.#connections.tenure;
  }

  /**
   * Sets it as we need it.
   *
   * @param more what is needed beside that
   * @param stays whether that stays when it is given back, where it is ours
   */
  async prepare(more: Settings = {}, stays = false): Promise<void> {
    const { connection, owned } = this;
    // What we are about to change on a connection of the user's is read first, and not remembered.
    const known = owned || Object.keys(more).length === 0 ? AT_REST.get(connection) : undefined;
    const now = known ?? (await settingsOf(connection));
    const odd = oddSettings(now);
    const rest = owned ? { ...now, ...odd, ...(stays && more) } : now;
    const wanted = { ...odd, ...more };
    this.#theirs = differing(rest, wanted);
    const isKnown = this.#connections.remembers && (owned || Object.keys(odd).length === 0);
    AT_REST.delete(connection);
    await set(connection, differing(wanted, now));
    if (isKnown) AT_REST.set(connection, rest);
  }

  /** An error on it: what it tells of the connection itself. */
  failed(error: unknown): void {
    if (isReadOnly(error)) this.tenure.endOf(this.connection);
    // Somebody may have set it otherwise since we looked.
    if (!isTransient(error)) AT_REST.delete(this.connection);
  }

  /** Set as it was, and only then back in the pool. */
  giveBack(withinMs: number): void {
    if (this.#over) return;
    this.#over = true;
    if (Object.keys(this.#theirs).length === 0) return this.#connections.giveBack(this.connection);
    const timer = setTimeout(() => this.#connections.destroy(this.connection), withinMs);
    timer.unref();
    set(this.connection, this.#theirs)
      .then(
        () => this.#connections.giveBack(this.connection),
        () => this.#connections.destroy(this.connection),
      )
      .finally(() => clearTimeout(timer));
  }

  destroy(): void {
    this.#over = true;
    this.#connections.destroy(this.connection);
  }

  /** How it is set is not as we remember it. */
  forget(): void {
    AT_REST.delete(this.connection);
  }
}

/** Those of the one that the other has too, with another value. */
function differing(these: Settings, others: Settings): Settings {
  return Object.fromEntries(
    Object.entries(these).filter(([name, value]) => name in others && `${others[name]}` !== `${value}`),
  );
}

export const SILENT = 'The database did not answer in time.';
