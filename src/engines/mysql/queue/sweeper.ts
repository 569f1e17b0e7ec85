/** Buries the dead and deletes lines that nobody uses, after beats, in the background. */
import type { MysqlRegisters } from '../registers.js';
import { buryTheDead, KINDS, type QueueTables } from './protocol.js';

const CHUNK = 1_000;
/** Not at once: a line that is used again and again would be made again and again. */
const IDLE_US = 5_000_000;
const CLEAN_EVERY_MS = 5_000;
const MOST_CHUNKS = 50;

export class LineSweeper {
  readonly #tables: QueueTables;
  readonly #registers: MysqlRegisters;
  #sweeping = false;
  #cleanAt = 0;
  /** Where to go on, for each kind of line. */
  readonly #after: Buffer[] = KINDS.map(() => Buffer.alloc(0));

  constructor(tables: QueueTables, registers: MysqlRegisters) {
    this.#tables = tables;
    this.#registers = registers;
  }

  sweep(somebodyIsDead: boolean): void {
    const { clock } = this.#tables;
    const isTime = clock.now() >= this.#cleanAt;
    if (this.#sweeping || !(somebodyIsDead || isTime)) return;
    this.#sweeping = true;
    if (isTime) this.#cleanAt = clock.now() + CLEAN_EVERY_MS * (0.5 + clock.random());
    this.#run(isTime)
      .catch(() => {
        // The next beat goes on.
      })
      .finally(() => (this.#sweeping = false));
  }

  async #run(clean: boolean): Promise<void> {
    await buryTheDead(this.#tables);
    if (!clean) return;
    for (const kind of KINDS.keys()) await this.#clean(kind);
    await this.#registers.forget();
  }

  async #clean(kind: number): Promise<void> {
    const { steps, namespace } = this.#tables;
    for (let chunk = 0; chunk < MOST_CHUNKS; chunk += 1) {
      const from = this.#after[kind]!;
      const [row] = await steps('clean_1', [namespace, kind, from, CHUNK, IDLE_US], {});
      const [until, deleted] = row!;
      this.#after[kind] = until === null ? Buffer.alloc(0) : (until as Buffer);
      if (until === null || Number(deleted) === 0) return;
    }
  }
}
