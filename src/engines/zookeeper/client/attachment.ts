/**
 * A session of ZooKeeper, on whichever server answers.
 *
 *     connecting ──> attached ──connection lost──> connecting ──> attached …
 *                                                      └──> expired: the servers say that the session is gone
 *
 * - A server that is lost, or silent for a part of the session's timeout, is left for the next at once; it takes a round of
 *   failures until there is a pause. The session stays the same, and watches go on where they were.
 * - What is asked while nobody is attached waits for that, in order. What was sent and not answered when a connection ended
 *   may have been carried out: it fails with `connectionLoss`, and nothing is ever sent twice unless the caller does it.
 * - A session is kept alive by whatever is asked of it, and by nothing else, unless `pings` says so: that it lives proves
 *   little (see ../proof.ts), so whoever relies on it asks for more than a ping.
 */
import { clearInterval, clearTimeout, setInterval, setTimeout } from '../../../core/real-time.js';
import { Connection, type ServerAddress } from './connection.js';
import type { Reader, Writer } from './jute.js';
import { type NodeEvent, OP, type Welcome, writeRequest, XID } from './messages.js';
import { CODE, ZooKeeperError } from './status.js';
import type { Watches } from './watches.js';

export interface AttachmentOptions {
  readonly servers: readonly ServerAddress[];
  /** What to ask for; the servers have bounds. */
  readonly timeoutMs: number;
  /** `user:password`. Nodes that we make are only for this user then. */
  readonly digest?: string | undefined;
  /** 0 ≤ x < 1: with which server to begin, so that clients spread. */
  readonly random: () => number;
  /** Keep the session alive without being asked anything. Default: false. */
  readonly pings?: boolean;
  readonly listener?: ClientListener;
}

export interface ClientListener {
  /** A server has taken us. @param askedAgoMs since it was asked to. */
  attached?(askedAgoMs: number): void;
  /** The session is gone, and this client with it. */
  expired?(): void;
}

interface Unsent {
  send(connection: Connection): void;
  fail(error: ZooKeeperError): void;
}

type State = 'new' | 'connecting' | 'attached' | 'expired' | 'refused' | 'closed';

/** The part of the timeout that a server may be silent for: three quarters of it are left to find another. Within bounds. */
const SILENCE_SHARE = 10;
const LEAST_SILENCE_MS = 300;
const MOST_SILENCE_MS = 4_000;
/** How often every server may fail before whoever opens a session hears of it. */
const OPENING_ROUNDS = 2;
/** Between rounds, when no server takes us: an election takes a while. */
const FIRST_PAUSE_MS = 25;
const LONGEST_PAUSE_MS = 400;
/** A message may have a megabyte, and paths are short: as many watches as surely fit. */
const WATCHES_AT_ONCE = 500;
const NO_PASSWORD: Buffer = Buffer.alloc(16);

export class Attachment {
  readonly #options: AttachmentOptions;
  /** What is to be watched on whichever server it is. */
  readonly #watches: Watches;
  readonly #unsent = new Set<Unsent>();
  readonly #opening: { resolve(): void; reject(error: ZooKeeperError): void }[] = [];
  #state: State = 'new';
  #connection: Connection | undefined;
  #server: number;
  #failures = 0;
  #trouble = 'no server was reached';
  #retry: NodeJS.Timeout | undefined;
  #pinger: NodeJS.Timeout | undefined;
  #timeoutMs: number;
  #sessionId = 0n;
  #password: Buffer = NO_PASSWORD;
  #zxid = 0n;

  constructor(options: AttachmentOptions, watches: Watches) {
    this.#options = options;
    this.#watches = watches;
    this.#timeoutMs = options.timeoutMs;
    this.#server = Math.floor(options.random() * options.servers.length);
  }

  get sessionId(): bigint {
    return this.#sessionId;
  }

  /** What the servers have agreed to, once we are attached. */
  get timeoutMs(): number {
    return this.#timeoutMs;
  }

  get attached(): boolean {
    return this.#state === 'attached';
  }

  /** The session is gone, or we have ended it: nothing can be asked any more. */
  get over(): boolean {
    return this.#state === 'expired' || this.#state === 'refused' || this.#state === 'closed';
  }

  /** Makes a session. It goes on trying until it is closed; this gives up sooner, and says why. */
  open(withinMs: number): Promise<void> {
    return new Promise((resolve, reject) => {
      const giveUp = setTimeout(() => opening.reject(this.#unreached()), withinMs);
      const opening = {
        resolve: () => {
          clearTimeout(giveUp);
          resolve();
        },
        reject: (error: ZooKeeperError) => {
          clearTimeout(giveUp);
          reject(error);
        },
      };
      if (this.#state === 'attached') return opening.resolve();
      this.#opening.push(opening);
      if (this.#state === 'new') this.#dial();
    });
  }

  /** Ends the session, if there is a server to tell it to, and with it what is ephemeral. */
  async close(): Promise<void> {
    // One that is about to be taken back by a server tells it when it is: see #welcomed.
    const reattaching = this.#state === 'connecting' && this.#sessionId !== 0n;
    const attached = this.#state === 'attached';
    this.#end(
      'closed',
      new ZooKeeperError(CODE.connectionLoss, { sent: false, detail: 'the client is closed' }),
      false,
    );
    if (attached) await closeSession(this.#connection!);
    else if (!reattaching) this.#connection?.end('the client is closed');
  }

  request<T>(op: number, write: (writer: Writer) => unknown, read: (reader: Reader, zxid: bigint) => T): Promise<T> {
    if (this.#state === 'attached') return this.#connection!.request(op, write, read);
    if (this.over) return Promise.reject(this.#overError());
    return new Promise((resolve, reject) => {
      const patience = setTimeout(() => unsent.fail(this.#unreached()), this.#timeoutMs / 3);
      const unsent: Unsent = {
        send: (connection) => {
          clearTimeout(patience);
          connection.request(op, write, read).then(resolve, reject);
        },
        fail: (error) => {
          clearTimeout(patience);
          this.#unsent.delete(unsent);
          reject(error);
        },
      };
      this.#unsent.add(unsent);
    });
  }

  // --- servers --------------------------------------------------------------------------------------------------

  #overError(): ZooKeeperError {
    if (this.#state === 'expired') return new ZooKeeperError(CODE.sessionExpired, { sent: false });
    if (this.#state === 'refused') return new ZooKeeperError(CODE.authFailed, { sent: false });
    return new ZooKeeperError(CODE.connectionLoss, { sent: false, detail: 'the client is closed' });
  }

  #unreached(): ZooKeeperError {
    return new ZooKeeperError(CODE.connectionLoss, { sent: false, detail: this.#trouble });
  }

  #dial(): void {
    const { servers } = this.#options;
    this.#state = 'connecting';
    const connection: Connection = new Connection(
      {
        server: servers[this.#server]!,
        hello: {
          zxid: this.#zxid,
          timeoutMs: this.#options.timeoutMs,
          sessionId: this.#sessionId,
          password: this.#password,
        },
        silenceMs: this.#silenceMs,
      },
      {
        welcomed: (welcome, askedAgoMs) => this.#welcomed(connection, welcome, askedAgoMs),
        seen: (zxid) => {
          if (zxid > this.#zxid) this.#zxid = zxid;
        },
        happened: ({ type, path }: NodeEvent) => this.#watches.tell({ type, path }),
        ended: (why) => this.#lost(connection, why),
        refused: () => this.#end('refused', new ZooKeeperError(CODE.authFailed), true),
      },
    );
    this.#connection = connection;
  }

  get #silenceMs(): number {
    return Math.min(MOST_SILENCE_MS, Math.max(LEAST_SILENCE_MS, this.#timeoutMs / SILENCE_SHARE));
  }

  #welcomed(connection: Connection, { timeoutMs, sessionId, password }: Welcome, askedAgoMs: number): void {
    if (this.over) return void closeSession(connection);
    if (timeoutMs === 0 || sessionId === 0n) return this.#expired();
    if (sessionId === this.#sessionId && timeoutMs < this.#timeoutMs) return this.#shortened(connection);
    // That it would live for longer here is counted on by nobody: the next server may not agree.
    if (sessionId !== this.#sessionId) this.#timeoutMs = timeoutMs;
    this.#sessionId = sessionId;
    this.#password = password;
    this.#state = 'attached';
    this.#failures = 0;
    this.#introduce(connection);
    for (const unsent of [...this.#unsent]) {
      this.#unsent.delete(unsent);
      unsent.send(connection);
    }
    if (this.#options.pings) this.#pinger ??= setInterval(() => this.#ping(), timeoutMs / 4).unref();
    this.#options.listener?.attached?.(askedAgoMs);
    for (const opening of this.#opening.splice(0)) opening.resolve();
  }

  /** Who we are, and what we want to hear of: before anything else that is sent. */
  #introduce(connection: Connection): void {
    const { digest } = this.#options;
    if (digest !== undefined)
      connection.send(
        writeRequest(XID.auth, OP.auth, (writer) => writer.int(0).text('digest').bytes(Buffer.from(digest))),
      );
    const [data, children] = [this.#watches.paths('data'), this.#watches.paths('children')];
    const rounds = Math.ceil(Math.max(data.length, children.length) / WATCHES_AT_ONCE);
    for (let round = 0; round < rounds; round += 1) {
      const [from, to] = [round * WATCHES_AT_ONCE, (round + 1) * WATCHES_AT_ONCE];
      connection.send(
        writeRequest(XID.setWatches, OP.setWatches, (writer) =>
          writer
            .long(this.#zxid)
            .list(data.slice(from, to), writeText)
            .list([], writeText)
            .list(children.slice(from, to), writeText),
        ),
      );
    }
  }

  #ping(): void {
    if (this.#state === 'attached') this.#connection!.ping();
  }

  /** The next server at once; after a round of failures, a pause. */
  #lost(connection: Connection, why: string): void {
    if (this.over || this.#connection !== connection) return;
    const { servers } = this.#options;
    this.#state = 'connecting';
    this.#trouble = why;
    this.#server = (this.#server + 1) % servers.length;
    this.#failures += 1;
    const rounds = Math.floor(this.#failures / servers.length);
    if (rounds >= OPENING_ROUNDS) for (const opening of this.#opening.splice(0)) opening.reject(this.#unreached());
    const inRound = this.#failures % servers.length !== 0;
    const pauseMs = inRound ? 0 : Math.min(LONGEST_PAUSE_MS, FIRST_PAUSE_MS * 2 ** Math.min(rounds - 1, 10));
    const retry = setTimeout(() => this.#dial(), pauseMs);
    // Who waits for an answer has a timer of their own.
    retry.unref();
    this.#retry = retry;
  }

  /** Each server agrees to a timeout of its own, and from now on this one counts: but others were told that it is longer. */
  #shortened(connection: Connection): void {
    this.#end('expired', new ZooKeeperError(CODE.sessionExpired), false);
    void closeSession(connection);
    this.#options.listener?.expired?.();
  }

  #expired(): void {
    this.#end('expired', new ZooKeeperError(CODE.sessionExpired), true);
    this.#options.listener?.expired?.();
  }

  #end(state: 'expired' | 'refused' | 'closed', error: ZooKeeperError, hangUp: boolean): void {
    if (this.over) return;
    this.#state = state;
    clearTimeout(this.#retry);
    clearInterval(this.#pinger);
    for (const unsent of [...this.#unsent]) unsent.fail(error);
    for (const opening of this.#opening.splice(0)) opening.reject(error);
    if (hangUp) this.#connection?.end(error.message);
  }
}

function nothing(): void {}

function writeText(writer: Writer, text: string): void {
  writer.text(text);
}

/** Silence ends the connection, and that ends this. */
async function closeSession(connection: Connection): Promise<void> {
  await connection.request(OP.closeSession, undefined, nothing).catch(nothing);
  connection.end('the client is closed');
}
