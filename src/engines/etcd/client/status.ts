/** What gRPC and etcd answer when they do not do what was asked. */

export const STATUS = {
  ok: 0,
  cancelled: 1,
  invalidArgument: 3,
  deadlineExceeded: 4,
  notFound: 5,
  permissionDenied: 7,
  resourceExhausted: 8,
  failedPrecondition: 9,
  outOfRange: 11,
  unimplemented: 12,
  unavailable: 14,
  unauthenticated: 16,
} as const;

/** In etcd's words. */
const NO_GOOD_TOKEN = ['revision of auth store is old', 'user name is empty'];

/** Never carries what was sent: keys and values are users' data, and one of the requests is a password. */
export class EtcdError extends Error {
  override readonly name = 'EtcdError';
  readonly status: number;
  /** Whether the request may have reached the server: then it may have been carried out. */
  readonly sent: boolean;

  constructor(status: number, message: string, sent: boolean) {
    super(message);
    this.status = status;
    this.sent = sent;
  }

  /** Another member, or the same one a moment later, may answer. */
  get elsewhere(): boolean {
    return this.status === STATUS.unavailable || this.status === STATUS.deadlineExceeded;
  }

  /** The token has expired, was made before users or roles changed, or there was none when users were switched on. */
  get needsToken(): boolean {
    return (
      this.status === STATUS.unauthenticated ||
      (this.status === STATUS.invalidArgument && NO_GOOD_TOKEN.some((words) => this.message.includes(words)))
    );
  }
}
