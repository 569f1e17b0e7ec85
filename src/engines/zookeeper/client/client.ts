/** A client of ZooKeeper: what can be asked of its servers. The session that it is asked in is attachment.ts. */
import { performance } from '../../../core/real-time.js';
import { Attachment, type AttachmentOptions } from './attachment.js';
import type { Reader, Writer } from './jute.js';
import {
  ANY,
  CREATOR_ACL,
  type CreateMode,
  OP,
  OPEN_ACL,
  readStat,
  readSteps,
  type Stat,
  type MultiStep,
  writeNode,
  writeSteps,
} from './messages.js';
import { CODE, isLost, isStatus, orUndefined, ZooKeeperError } from './status.js';
import { Watches, type WatchKind } from './watches.js';

export interface ZooKeeperClientOptions extends AttachmentOptions {
  /** The node that everything lies under: `/a/b`, or nothing. */
  readonly chroot?: string | undefined;
}

export interface Znode {
  readonly data: Buffer;
  readonly stat: Stat;
}

export interface Children {
  /** In no order. */
  readonly names: readonly string[];
  readonly stat: Stat;
}

export interface NewNodeOptions {
  readonly data?: Uint8Array;
  readonly mode: CreateMode;
}

export class ZooKeeperClient {
  readonly #options: ZooKeeperClientOptions;
  readonly #chroot: string;
  readonly #watches = new Watches();
  readonly #attachment: Attachment;

  constructor(options: ZooKeeperClientOptions) {
    this.#options = options;
    this.#chroot = options.chroot ?? '';
    this.#attachment = new Attachment(options, this.#watches);
  }

  get sessionId(): bigint {
    return this.#attachment.sessionId;
  }

  /** What the servers have agreed to, once we are attached. */
  get timeoutMs(): number {
    return this.#attachment.timeoutMs;
  }

  get attached(): boolean {
    return this.#attachment.attached;
  }

  /** Makes a session. It goes on trying until it is closed; this gives up sooner, and says why. */
  open(withinMs: number): Promise<void> {
    return this.#attachment.open(withinMs);
  }

  /** Ends the session, if there is a server to tell it to, and with it what is ephemeral. */
  close(): Promise<void> {
    return this.#attachment.close();
  }

  /** @returns the path, with its number if it is sequential. */
  create(path: string, { data, mode }: NewNodeOptions): Promise<{ readonly path: string; readonly stat: Stat }> {
    const node = { path: this.#full(path), data, mode, acl: this.#acl };
    return this.#attachment.request(
      mode === 'container' ? OP.createContainer : OP.create2,
      (writer) => writeNode(writer, node),
      (reader) => ({ path: this.#own(reader.text()), stat: readStat(reader) }),
    );
  }

  /** @returns the transaction that did it. */
  delete(path: string, version = ANY): Promise<bigint> {
    return this.#attachment.request(OP.delete, (writer) => writer.text(this.#full(path)).int(version), transaction);
  }

  /** Undefined: there is none. */
  async exists(path: string): Promise<Stat | undefined> {
    const write = (writer: Writer): Writer => writer.text(this.#full(path)).bool(false);
    return orUndefined(this.#attachment.request(OP.exists, write, readStat));
  }

  /** Fails where there is no node; then nothing is watched either. */
  getData(path: string, watcher?: () => void): Promise<Znode> {
    return this.#watched('data', path, watcher, OP.getData, readNode);
  }

  setData(path: string, data: Uint8Array, version = ANY): Promise<Stat> {
    const write = (writer: Writer): Writer => writer.text(this.#full(path)).bytes(data).int(version);
    return this.#attachment.request(OP.setData, write, readStat);
  }

  getChildren(path: string, watcher?: () => void): Promise<Children> {
    return this.#watched('children', path, watcher, OP.getChildren2, readChildren);
  }

  /** Paths of everything that goes with this session. Needs ZooKeeper 3.6. */
  async getEphemerals(): Promise<string[]> {
    const write = (writer: Writer): Writer => writer.text(this.#chroot || '/');
    const paths = await this.#attachment.request(OP.getEphemerals, write, readTexts);
    // They are those that begin like the chroot: `/a` is not above `/ab`.
    return paths.filter((path) => path.startsWith(`${this.#chroot}/`)).map((path) => this.#own(path));
  }

  /** Whatever is read after it is as new as what the leader had when it was asked. */
  sync(path = '/'): Promise<void> {
    return this.#attachment.request(OP.sync, (writer) => writer.text(this.#full(path)), nothing);
  }

  /** All of it, or none. */
  multi(steps: readonly DistributiveOmit<MultiStep, 'acl'>[]): Promise<void> {
    const full = steps.map(
      (step): MultiStep => ({ ...step, acl: this.#acl, path: this.#full(step.path) }) as MultiStep,
    );
    return this.#attachment.request(OP.multi, (writer) => writeSteps(writer, full), readSteps);
  }

  unwatch(kind: WatchKind, path: string, watcher: () => void): void {
    this.#watches.remove(kind, this.#full(path), watcher);
  }

  /** Makes sure that a node is there, with all above it, also those above the chroot. Only the last is what `mode` says. */
  async make(path: string, mode: 'persistent' | 'container'): Promise<void> {
    const missing: string[] = [];
    // Upwards, no further than must be: who may make nodes here may have no rights above.
    let above = path;
    while (above !== '' && !(await this.#isMade(above, above === path ? mode : 'persistent'))) {
      missing.unshift(above);
      above = above.slice(0, above.lastIndexOf('/'));
    }
    if (above === '') await this.#makeChroot();
    for (const each of missing)
      if (!(await this.#isMade(each, each === path ? mode : 'persistent')))
        throw new ZooKeeperError(CODE.runtimeInconsistency);
  }

  /** False: there is nothing above it. */
  async #isMade(path: string, mode: CreateMode): Promise<boolean> {
    try {
      await this.create(path, { mode });
    } catch (error) {
      if (isStatus(error, CODE.noNode)) return false;
      if (!isStatus(error, CODE.nodeExists)) throw error;
    }
    return true;
  }

  /** Again and again while connections are lost, for work that may be done twice. It is told which try it is. */
  async insist<T>(withinMs: number, work: (attempt: number) => Promise<T>): Promise<T> {
    const endsAt = performance.now() + withinMs;
    for (let attempt = 0; ; attempt += 1) {
      try {
        return await work(attempt);
      } catch (error) {
        if (!isLost(error) || performance.now() >= endsAt || this.#attachment.over) throw error;
      }
    }
  }

  async #makeChroot(): Promise<void> {
    const parts = this.#chroot.split('/').slice(1);
    for (let count = 1; count <= parts.length; count += 1) {
      const node = { path: `/${parts.slice(0, count).join('/')}`, mode: 'persistent' as const, acl: this.#acl };
      await this.#attachment
        .request(OP.create2, (writer) => writeNode(writer, node), nothing)
        .catch((error: unknown) => {
          if (!isStatus(error, CODE.nodeExists)) throw error;
        });
    }
  }

  /** Known as a watcher before the request is sent: nothing can come between. */
  async #watched<T>(
    kind: WatchKind,
    path: string,
    watcher: (() => void) | undefined,
    op: number,
    read: (reader: Reader) => T,
  ): Promise<T> {
    const full = this.#full(path);
    if (watcher) this.#watches.add(kind, full, watcher);
    try {
      return await this.#attachment.request(op, (writer) => writer.text(full).bool(watcher !== undefined), read);
    } catch (error) {
      if (watcher) this.#watches.remove(kind, full, watcher);
      throw error;
    }
  }

  get #acl(): typeof OPEN_ACL {
    return this.#options.digest === undefined ? OPEN_ACL : CREATOR_ACL;
  }

  /** As the servers call it. */
  #full(path: string): string {
    return this.#chroot !== '' && path === '/' ? this.#chroot : this.#chroot + path;
  }

  /** As we call it. */
  #own(path: string): string {
    return path.slice(this.#chroot.length) || '/';
  }
}

type DistributiveOmit<T, K extends PropertyKey> = T extends unknown ? Omit<T, K> : never;

function nothing(): void {}

function transaction(_reader: Reader, zxid: bigint): bigint {
  return zxid;
}

function readTexts(reader: Reader): string[] {
  return reader.list((each) => each.text());
}

function readNode(reader: Reader): Znode {
  return { data: reader.bytes(), stat: readStat(reader) };
}

function readChildren(reader: Reader): Children {
  return { names: readTexts(reader), stat: readStat(reader) };
}
