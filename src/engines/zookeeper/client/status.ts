/** What ZooKeeper answers when it does not do what was asked, and what we say when it does not answer. */

export const CODE = {
  ok: 0,
  /** In a multi: this one would have been fine, another was not. Ours: what is there and not there at every look. */
  runtimeInconsistency: -2,
  connectionLoss: -4,
  unimplemented: -6,
  noNode: -101,
  noAuth: -102,
  badVersion: -103,
  nodeExists: -110,
  notEmpty: -111,
  sessionExpired: -112,
  authFailed: -115,
  sessionMoved: -118,
} as const;

const WORDS: ReadonlyMap<number, string> = new Map([
  [CODE.runtimeInconsistency, 'the server contradicts itself'],
  [CODE.connectionLoss, 'the connection was lost'],
  [CODE.unimplemented, 'the server does not know this request; it must be 3.6 or newer'],
  [CODE.noNode, 'there is no such node'],
  [CODE.noAuth, 'permission denied'],
  [CODE.badVersion, 'the node has another version'],
  [CODE.nodeExists, 'the node exists already'],
  [CODE.notEmpty, 'the node has children'],
  [CODE.sessionExpired, 'the session has expired'],
  [CODE.authFailed, 'authentication failed'],
  [CODE.sessionMoved, 'the session has moved to another server'],
]);

/** Never carries what was sent: data is the user's, and one of the requests is a password. */
export class ZooKeeperError extends Error {
  override readonly name = 'ZooKeeperError';
  readonly status: number;
  /** Whether the request may have reached the server: then it may have been carried out. */
  readonly sent: boolean;

  constructor(status: number, options: { readonly sent?: boolean; readonly detail?: string } = {}) {
    const { sent = true, detail } = options;
    super((WORDS.get(status) ?? `error ${status}`) + (detail === undefined ? '' : ` (${detail})`));
    this.status = status;
    this.sent = sent;
  }

  /** The session may well live: another server, or the same one a moment later, may answer. */
  get lost(): boolean {
    return this.status === CODE.connectionLoss || this.status === CODE.sessionMoved;
  }
}

export function isStatus(error: unknown, ...statuses: readonly number[]): error is ZooKeeperError {
  return error instanceof ZooKeeperError && statuses.includes(error.status);
}

export function isLost(error: unknown): error is ZooKeeperError {
  return error instanceof ZooKeeperError && error.lost;
}

/** Of a node that is not there. */
export async function orUndefined<T>(work: Promise<T>): Promise<T | undefined> {
  try {
    return await work;
  } catch (error) {
    if (isStatus(error, CODE.noNode)) return undefined;
    throw error;
  }
}
