/**
 * A session's own node, where others write what it is to be told: [claim id, reason], one pair for each claim that is to go.
 * It goes with the session, and what nobody has read goes with it. The session watches it, and empties it.
 */
import { foreignJson, foreignReason } from '../../kit/foreign-json.js';
import type { Znode, ZooKeeperClient } from './client/client.js';
import { CODE, isStatus, ZooKeeperError } from './client/status.js';

type Letter = readonly [claimId: string, reason: string];

/** Everybody else who writes at the same moment gets through in between. */
const TRIES = 100;
/** Nobody else makes a session's own node, or removes it. */
const MAKES = 5;

export class Mailbox {
  readonly path: string;
  readonly #client: ZooKeeperClient;
  /** What fails is done again with the next beat. */
  readonly #changed = (): void => {
    this.#isStale = true;
    if (this.#reading) return;
    this.#reading = this.#readAll()
      .catch(() => {})
      .finally(() => (this.#reading = undefined));
  };
  /** After a change: one at a time, however many a server says that there were. */
  #reading: Promise<void> | undefined;
  #isStale = false;
  #deliver: (claimId: string, reason: string) => void = () => {};

  private constructor(client: ZooKeeperClient, path: string) {
    this.#client = client;
    this.path = path;
  }

  static async open(client: ZooKeeperClient, path: string, withinMs: number): Promise<Mailbox> {
    const mailbox = new Mailbox(client, path);
    await client.insist(withinMs, () => mailbox.read());
    return mailbox;
  }

  listen(deliver: (claimId: string, reason: string) => void): void {
    this.#deliver = deliver;
  }

  async read(): Promise<void> {
    const { data, stat } = await this.#node();
    const letters = lettersIn(data);
    for (const [claimId, reason] of letters) this.#deliver(claimId, foreignReason(reason));
    // If one more has come meanwhile, its change is told, and all are read again.
    if (data.length > 0 && !data.equals(NO_LETTERS))
      this.#client.setData(this.path, NO_LETTERS, stat.version).catch(() => {});
  }

  async #readAll(): Promise<void> {
    while (this.#isStale) {
      this.#isStale = false;
      await this.read();
    }
  }

  /** Makes it if it is not there. */
  async #node(): Promise<Znode> {
    for (let makes = 0; makes < MAKES; makes += 1) {
      try {
        return await this.#client.getData(this.path, this.#changed);
      } catch (error) {
        if (!isStatus(error, CODE.noNode)) throw error;
      }
      await this.#make();
    }
    throw new ZooKeeperError(CODE.runtimeInconsistency);
  }

  async #make(): Promise<void> {
    try {
      await this.#client.create(this.path, { data: NO_LETTERS, mode: 'ephemeral' });
    } catch (error) {
      if (isStatus(error, CODE.nodeExists)) return;
      if (!isStatus(error, CODE.noNode)) throw error;
      await this.#client.make(this.path.slice(0, this.path.lastIndexOf('/')), 'persistent');
    }
  }
}

/** False: the claim, or its session, is gone. */
export async function post(
  client: ZooKeeperClient,
  { mailbox, claim }: { readonly mailbox: string; readonly claim: string },
  letter: Letter,
): Promise<boolean> {
  for (let attempt = 1; ; attempt += 1) {
    try {
      const { data, stat } = await client.getData(mailbox);
      const letters = Buffer.from(JSON.stringify([...lettersIn(data), letter]));
      await client.multi([
        { step: 'check', path: claim },
        { step: 'set', path: mailbox, data: letters, version: stat.version },
      ]);
      return true;
    } catch (error) {
      if (isStatus(error, CODE.noNode)) return false;
      if (!isStatus(error, CODE.badVersion) || attempt === TRIES) throw error;
    }
  }
}

const NO_LETTERS = Buffer.from('[]');

/** Whatever is written there by others. */
export function lettersIn(data: Buffer): readonly Letter[] {
  const letters = foreignJson(data.toString());
  return Array.isArray(letters) ? (letters as unknown[]).filter(isLetter) : [];
}

function isLetter(value: unknown): value is Letter {
  return Array.isArray(value) && value.length === 2 && value.every((part) => typeof part === 'string');
}
