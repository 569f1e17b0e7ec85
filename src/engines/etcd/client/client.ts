/**
 * A client of etcd: the few calls that a lock needs, on whichever member answers.
 *
 * - Every call has a deadline.
 * - A member that refuses, or has no leader, is left at once for the next. One that is silent is left after a third of the
 *   deadline: the call is sent to the next as well, and the first answer counts. So one slow election is waited for, and
 *   one frozen member is not.
 * - Only calls that may be carried out twice are sent twice. Any other is repeated only if it was never sent.
 * - An election is waited for. Where no member so much as takes a connection, the caller is told why, soon.
 */
import { clearTimeout, performance, setTimeout } from '../../../core/real-time.js';
import { WireError } from '../../../kit/frame-reader.js';
import { Connection, type Member, type Stream, type StreamListener } from './connection.js';
import { MOST, type Most, mostOfLease } from './frames.js';
import {
  AuthenticateRequest,
  AuthenticateResponse,
  LeaseGrantRequest,
  LeaseGrantResponse,
  LeaseKeepAliveRequest,
  LeaseKeepAliveResponse,
  LeaseRevokeRequest,
  LeaseRevokeResponse,
  LeaseTimeToLiveRequest,
  LeaseTimeToLiveResponse,
  RangeRequest,
  RangeResponse,
  TxnRequest,
  TxnResponse,
} from './messages.js';
import { EtcdError, STATUS } from './status.js';
import { Watches } from './watches.js';
import { type Message, type Received, type Sent, TooMuchError } from './wire.js';

export interface EtcdClientOptions {
  readonly members: readonly Member[];
  readonly user?: string | undefined;
  readonly password?: string | undefined;
  /** 0 ≤ x < 1: with which member to begin, so that clients spread. */
  readonly random: () => number;
}

export interface Calling {
  readonly withinMs: number;
  /** Carried out twice, it does what it does once. Default: true. */
  readonly repeatable?: boolean;
  /** How often every member may refuse before the caller is told. Default: as often as the deadline allows. */
  readonly rounds?: number;
}

/** What a member is given before the next is asked too: a part of the deadline, within bounds. */
const PATIENCE_SHARE = 3;
const LEAST_PATIENCE_MS = 100;
const MOST_PATIENCE_MS = 1_000;
/** Between rounds, when every member has refused: an election takes a while. */
const ROUND_PAUSE_MS = 50;
/** How often no member at all may be reached before the caller is told. */
const UNREACHED_ROUNDS = 2;
/** Passwords are hashed slowly, on purpose. */
const AUTHENTICATE_WITHIN_MS = 5_000;
/** How often a call is sent with a new token: while users are switched on, members may not agree for a moment. */
const TOKENS_TRIED = 3;
/** What can stand in a header. etcd's are short, and signed ones have a few hundred characters. */
const TOKEN = /^[\x21-\x7e]{1,8192}$/;
/** The longest that etcd itself keeps a lease, in seconds. */
const LONGEST_LEASE = 9_000_000_000n;

/** Every answer says when it was true; one that does not is none. */
type Answer<M> = Received<M> & { readonly header: NonNullable<(Received<M> & Headed)['header']> };
interface Headed {
  readonly header: Received<typeof RangeResponse>['header'];
}

export class EtcdClient {
  readonly watches: Watches;
  readonly #connections: readonly Connection[];
  readonly #login: { readonly name: string; readonly password: string } | undefined;
  #current: number;
  #token: Promise<string> | undefined;
  #closed = false;

  constructor({ members, user, password, random }: EtcdClientOptions) {
    this.#connections = members.map((member) => new Connection(member));
    this.#login = user === undefined ? undefined : { name: user, password: password ?? '' };
    this.#current = Math.floor(random() * members.length);
    this.watches = new Watches({
      open: (path, listener) => this.#stream(path, listener),
      refused: () => (this.#token = undefined),
    });
  }

  range(
    request: Sent<typeof RangeRequest>,
    calling: Calling,
    most: Most = MOST.keys,
  ): Promise<Answer<typeof RangeResponse>> {
    return this.#call('KV/Range', RangeRequest.encode(request), RangeResponse, calling, most);
  }

  /** Say whether it may be repeated: that depends on what it does. */
  txn(
    request: Sent<typeof TxnRequest>,
    calling: Calling & { readonly repeatable: boolean },
  ): Promise<Answer<typeof TxnResponse>> {
    return this.#call('KV/Txn', TxnRequest.encode(request), TxnResponse, calling, MOST.keys);
  }

  /** A lease whose grant was not heard of ends by itself. Its ttl may be longer than asked for: members have a minimum. */
  async leaseGrant(ttl: bigint, calling: Calling): Promise<Answer<typeof LeaseGrantResponse>> {
    const body = LeaseGrantRequest.encode({ ttl });
    const granted = await this.#call('Lease/LeaseGrant', body, LeaseGrantResponse, calling);
    // A key under lease 0 is under none, and stays for ever.
    if (granted.id <= 0n || granted.ttl <= 0n || granted.ttl > LONGEST_LEASE)
      throw new EtcdError(STATUS.unavailable, 'a lease that there can’t be', true);
    return granted;
  }

  leaseRevoke(id: bigint, calling: Calling): Promise<Answer<typeof LeaseRevokeResponse>> {
    return this.#call('Lease/LeaseRevoke', LeaseRevokeRequest.encode({ id }), LeaseRevokeResponse, calling);
  }

  /** A stream by its definition; one request and one answer of it are a call like any other. */
  leaseKeepAlive(id: bigint, calling: Calling): Promise<Answer<typeof LeaseKeepAliveResponse>> {
    return this.#call('Lease/LeaseKeepAlive', LeaseKeepAliveRequest.encode({ id }), LeaseKeepAliveResponse, calling);
  }

  /** @param claims as many as there should be. */
  leaseKeys(id: bigint, calling: Calling, claims: number): Promise<Answer<typeof LeaseTimeToLiveResponse>> {
    const body = LeaseTimeToLiveRequest.encode({ id, keys: true });
    return this.#call('Lease/LeaseTimeToLive', body, LeaseTimeToLiveResponse, calling, mostOfLease(claims));
  }

  close(): void {
    this.#closed = true;
    this.watches.close();
    for (const connection of this.#connections) connection.close();
  }

  // --- members --------------------------------------------------------------------------------------------------

  async #call<M extends Message<Headed>>(
    method: string,
    body: Buffer,
    answer: M,
    calling: Calling,
    most: Most = MOST.numbers,
  ): Promise<Answer<M>> {
    const path = `/etcdserverpb.${method}`;
    let used: Promise<string> | undefined;
    const attempt = async (connection: Connection, withinMs: number): Promise<Answer<M>> => {
      const token = await this.#currentToken();
      used = this.#token;
      return read(answer, await connection.call({ path, body, withinMs, token, longest: most.bytes }), most);
    };
    for (let tries = 1; ; tries += 1) {
      try {
        return await this.#try(attempt, calling);
      } catch (error) {
        if (!(error instanceof EtcdError && error.needsToken && this.#login)) throw error;
        // It was refused before anything was done, so even what must not be repeated may be sent again.
        if (this.#token === used) this.#token = undefined;
        if (tries === TOKENS_TRIED) throw new EtcdError(STATUS.unavailable, error.message, false);
      }
    }
  }

  #try<T>(
    attempt: (connection: Connection, withinMs: number) => Promise<T>,
    { withinMs, repeatable = true, rounds = Number.POSITIVE_INFINITY }: Calling,
  ): Promise<T> {
    const endsAt = performance.now() + withinMs;
    const members = this.#connections.length;
    const patienceMs = Math.min(MOST_PATIENCE_MS, Math.max(LEAST_PATIENCE_MS, withinMs / PATIENCE_SHARE));
    return new Promise((resolve, reject) => {
      let [underWay, sent, failed, reached] = [0, 0, 0, false];
      let timer: NodeJS.Timeout | undefined;
      const later = (ms: number, run: () => void): void => {
        clearTimeout(timer);
        timer = setTimeout(run, ms);
      };
      const refused = (error: unknown, member: number): void => {
        underWay -= 1;
        failed += 1;
        const lost = !(error instanceof EtcdError && error.elsewhere) || this.#closed;
        reached ||= lost || error.sent;
        if (!lost) this.#leave(member);
        const pauseMs = failed % members === 0 ? ROUND_PAUSE_MS : 0;
        const most = reached ? rounds : Math.min(rounds, UNREACHED_ROUNDS);
        const inTime = failed < most * members && performance.now() + pauseMs < endsAt;
        const again = inTime && !lost && (repeatable || !error.sent);
        if (again && underWay === 0) return later(pauseMs, next);
        if (lost || underWay === 0) {
          clearTimeout(timer);
          reject(error instanceof Error ? error : new Error(String(error)));
        }
      };
      const next = (): void => {
        const member = this.#current;
        underWay += 1;
        sent += 1;
        attempt(this.#connections[member]!, Math.max(1, endsAt - performance.now())).then(
          (value) => {
            clearTimeout(timer);
            resolve(value);
          },
          (error: unknown) => refused(error, member),
        );
        if (!repeatable || sent >= 2 * members || members === 1) return;
        later(patienceMs, () => {
          this.#leave(member);
          next();
        });
      };
      next();
    });
  }

  /** Only if nobody else has moved on already: else two failures at once would come back to the same member. */
  #leave(member: number): void {
    if (this.#current === member) this.#current = (member + 1) % this.#connections.length;
  }

  /** On one member, until it ends; then the next one's turn. */
  async #stream(path: string, listener: StreamListener): Promise<Stream> {
    const token = await this.#currentToken();
    if (this.#closed) throw new EtcdError(STATUS.cancelled, 'the client is closed', false);
    const member = this.#current;
    return this.#connections[member]!.stream(
      { path, token, longest: MOST.keys.bytes },
      {
        message: (message) => listener.message(message),
        ended: (error) => {
          if (error.needsToken) this.#token = undefined;
          this.#leave(member);
          listener.ended(error);
        },
      },
    );
  }

  // --- users ----------------------------------------------------------------------------------------------------

  async #currentToken(): Promise<string | undefined> {
    if (!this.#login) return undefined;
    this.#token ??= this.#authenticate(this.#login);
    const asked = this.#token;
    try {
      return (await asked) || undefined;
    } catch (error) {
      if (this.#token === asked) this.#token = undefined;
      throw error;
    }
  }

  /** The empty token: users are switched off, so anybody may do everything. */
  async #authenticate(login: { readonly name: string; readonly password: string }): Promise<string> {
    const body = AuthenticateRequest.encode(login);
    const path = '/etcdserverpb.Auth/Authenticate';
    const most = MOST.numbers;
    const attempt = async (connection: Connection, withinMs: number): Promise<string> =>
      read(AuthenticateResponse, await connection.call({ path, body, withinMs, longest: most.bytes }), most).token;
    try {
      const token = await this.#try(attempt, { withinMs: AUTHENTICATE_WITHIN_MS });
      if (!TOKEN.test(token)) throw new EtcdError(STATUS.unavailable, 'a token that can’t be shown', true);
      return token;
    } catch (error) {
      if (error instanceof EtcdError && error.message.includes('authentication is not enabled')) return '';
      throw error;
    }
  }
}

function read<M extends Message<Headed>>(answer: M, message: Buffer, most: Most): Answer<M> {
  const read = decoded(answer, message, most);
  if (!read.header) throw new EtcdError(STATUS.unavailable, 'an answer without a header', true);
  return read as Answer<M>;
}

function decoded<T>(answer: Message<T>, message: Buffer, { items }: Most): T {
  try {
    return answer.decode(message, items);
  } catch (error) {
    if (!(error instanceof WireError)) throw error;
    const status = error instanceof TooMuchError ? STATUS.resourceExhausted : STATUS.unavailable;
    throw new EtcdError(status, error.message, true);
  }
}
