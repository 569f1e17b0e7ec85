/**
 * The messages that a lock needs. A request is a header (its number and what it asks for) and a body; a reply is a header (the
 * same number, the newest transaction that the server has carried out, an error code) and, without an error, a body.
 */
import { WireError } from '../../../kit/frame-reader.js';
import { Reader, Writer } from './jute.js';
import { CODE, ZooKeeperError } from './status.js';

/** What is asked for. */
export const OP = {
  create: 1,
  delete: 2,
  exists: 3,
  getData: 4,
  setData: 5,
  sync: 9,
  ping: 11,
  getChildren2: 12,
  check: 13,
  multi: 14,
  create2: 15,
  createContainer: 19,
  auth: 100,
  setWatches: 101,
  getEphemerals: 103,
  closeSession: -11,
} as const;

/** Numbers of requests that are not counted, and of what the server says unasked. */
export const XID = { event: -1, ping: -2, auth: -4, setWatches: -8 } as const;

/** What happened to a watched node. */
export const EVENT = { created: 1, deleted: 2, dataChanged: 3, childrenChanged: 4 } as const;

export interface Stat {
  /** The transaction that made it: agreed by a majority, and never given twice. */
  readonly czxid: bigint;
  readonly mzxid: bigint;
  /** Epoch milliseconds by the leader's clock. */
  readonly ctime: bigint;
  readonly mtime: bigint;
  /** Of its data. */
  readonly version: number;
  readonly cversion: number;
  readonly aversion: number;
  /** The session that it goes with; 0: it stays. */
  readonly ephemeralOwner: bigint;
  readonly dataLength: number;
  readonly numChildren: number;
  readonly pzxid: bigint;
}

export interface Acl {
  readonly perms: number;
  readonly scheme: string;
  readonly id: string;
}

const ALL_PERMS = 31;
/** Anybody may do everything. */
export const OPEN_ACL: readonly Acl[] = [{ perms: ALL_PERMS, scheme: 'world', id: 'anyone' }];
/** Whoever the session has said to be may do everything, and nobody else anything. */
export const CREATOR_ACL: readonly Acl[] = [{ perms: ALL_PERMS, scheme: 'auth', id: '' }];

export type CreateMode = 'persistent' | 'ephemeral' | 'ephemeral-sequential' | 'container';
const FLAGS: Readonly<Record<CreateMode, number>> = {
  persistent: 0,
  ephemeral: 1,
  'ephemeral-sequential': 3,
  container: 4,
};

export interface NewNode {
  readonly path: string;
  readonly data?: Uint8Array | undefined;
  readonly mode: CreateMode;
  readonly acl: readonly Acl[];
}

/** One step of a multi: all of them are carried out, or none. */
export type MultiStep =
  | ({ readonly step: 'create' } & NewNode)
  | { readonly step: 'delete' | 'check'; readonly path: string; readonly version?: number }
  | { readonly step: 'set'; readonly path: string; readonly data: Uint8Array; readonly version?: number };

/** Of any version. */
export const ANY = -1;

/** Nobody asks for more. A server that gives more would keep the locks of the dead for as long. */
const LONGEST_TIMEOUT_MS = 600_000;

// --- the handshake ------------------------------------------------------------------------------------------------

export interface Hello {
  /** The newest transaction that we have seen: a server that is behind it refuses us. */
  readonly zxid: bigint;
  readonly timeoutMs: number;
  /** 0: a new session. */
  readonly sessionId: bigint;
  readonly password: Buffer;
}

export interface Welcome {
  /** 0: there is no such session any more. */
  readonly timeoutMs: number;
  readonly sessionId: bigint;
  readonly password: Buffer;
}

export function writeHello({ zxid, timeoutMs, sessionId, password }: Hello): Buffer {
  // At the end: never a server that only reads, because it has lost the others.
  return new Writer().int(0).long(zxid).int(timeoutMs).long(sessionId).bytes(password).bool(false).finish();
}

export function readWelcome(message: Buffer): Welcome {
  const reader = new Reader(message);
  reader.int();
  const timeoutMs = reader.int();
  const sessionId = reader.long();
  if (timeoutMs > LONGEST_TIMEOUT_MS) throw new WireError('a session that lives for longer than any is asked to');
  // A copy: what was received is a part of something larger.
  return { timeoutMs: Math.max(0, timeoutMs), sessionId, password: Buffer.from(reader.bytes()) };
}

// --- requests -----------------------------------------------------------------------------------------------------

export function writeRequest(xid: number, op: number, write?: (writer: Writer) => unknown): Buffer {
  const writer = new Writer().int(xid).int(op);
  write?.(writer);
  return writer.finish();
}

export function writeNode(writer: Writer, { path, data, mode, acl }: NewNode): Writer {
  return writer
    .text(path)
    .bytes(data ?? EMPTY)
    .list(acl, (each, { perms, scheme, id }) => each.int(perms).text(scheme).text(id))
    .int(FLAGS[mode]);
}

export function writeSteps(writer: Writer, steps: readonly MultiStep[]): void {
  for (const step of steps) {
    if (step.step === 'create') {
      writeNode(stepHeader(writer, OP.create2), step);
    } else if (step.step === 'set') {
      stepHeader(writer, OP.setData)
        .text(step.path)
        .bytes(step.data)
        .int(step.version ?? ANY);
    } else {
      stepHeader(writer, step.step === 'delete' ? OP.delete : OP.check)
        .text(step.path)
        .int(step.version ?? ANY);
    }
  }
  stepHeader(writer, ANY, true);
}

function stepHeader(writer: Writer, op: number, last = false): Writer {
  return writer.int(op).bool(last).int(ANY);
}

const EMPTY = new Uint8Array(0);

// --- replies ------------------------------------------------------------------------------------------------------

export interface ReplyHeader {
  readonly xid: number;
  readonly zxid: bigint;
  readonly status: number;
}

export function readHeader(reader: Reader): ReplyHeader {
  return { xid: reader.int(), zxid: reader.long(), status: reader.int() };
}

export interface NodeEvent {
  readonly type: number;
  readonly path: string;
}

export function readEvent(reader: Reader): NodeEvent {
  const type = reader.int();
  // The state of the connection, which we know better.
  reader.int();
  return { type, path: reader.text() };
}

export function readStat(reader: Reader): Stat {
  return {
    czxid: reader.long(),
    mzxid: reader.long(),
    ctime: reader.long(),
    mtime: reader.long(),
    version: reader.int(),
    cversion: reader.int(),
    aversion: reader.int(),
    ephemeralOwner: reader.long(),
    dataLength: reader.int(),
    numChildren: reader.int(),
    pzxid: reader.long(),
  };
}

/** Throws what the first step that failed says. What the steps answer beside that nobody needs. */
export function readSteps(reader: Reader): void {
  let failure: number | undefined;
  for (;;) {
    const type = reader.int();
    const last = reader.bool();
    reader.int();
    if (last) break;
    if (type === ANY) {
      const status = reader.int();
      if (status !== CODE.ok && status !== CODE.runtimeInconsistency) failure ??= status;
    } else {
      passResult(reader, type);
    }
  }
  if (failure !== undefined) throw new ZooKeeperError(failure);
}

function passResult(reader: Reader, type: number): void {
  if (type === OP.create || type === OP.create2) reader.text();
  if (type === OP.create2 || type === OP.setData) readStat(reader);
  else if (type !== OP.create && type !== OP.delete && type !== OP.check) throw new WireError('an unknown result');
}
