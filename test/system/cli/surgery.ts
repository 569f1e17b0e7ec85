import { DatabaseSync } from '@photostructure/sqlite';
import type { Sandbox } from './sandbox.js';

/** The database that the locks are in, for what no user would do to it. */
export class Surgery implements Disposable {
  readonly #database: InstanceType<typeof DatabaseSync>;

  constructor({ file }: Sandbox) {
    this.#database = new DatabaseSync(file);
    this.run('PRAGMA busy_timeout = 5000');
  }

  run(sql: string): void {
    this.#database.exec(sql);
  }

  /** The session that holds: how often it has beaten, and until when that keeps it alive. */
  holder(): { readonly id: string; readonly beats: number; readonly ttl_ms: number; readonly expires_ms: number } {
    const held = 'SELECT session FROM claim WHERE held = 1';
    return this.#database.prepare(`SELECT * FROM session WHERE id = (${held})`).get() as ReturnType<Surgery['holder']>;
  }

  /** Every beat of the session that holds fails. Others are served as ever. */
  deafen(): void {
    const { id } = this.holder();
    this.run(
      `CREATE TRIGGER deaf BEFORE UPDATE ON session WHEN old.id = '${id}' BEGIN SELECT RAISE(ABORT, 'deaf'); END`,
    );
  }

  [Symbol.dispose](): void {
    this.#database.close();
  }
}
