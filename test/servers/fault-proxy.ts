/**
 * A bad network between a client and one server: a TCP proxy on a loopback port of its own that knows no protocol.
 *
 *     client ──requests──> proxy ──requests──> server
 *     client <──replies─── proxy <──replies─── server
 *
 *     await using proxy = await FaultProxy.start(redis.port);
 *     const lost = proxy.loseReplyOf((request) => request.includes('EVALSHA'));
 *     …                     // a client acquires through proxy.port; the server grants, and nobody tells the client
 *     await lost;
 *
 * Each direction is a queue, and its bytes keep their order whatever the faults are and however they change. The end of
 * a connection takes the same way as its bytes: while the network is frozen, no side learns that the other has gone.
 */
import { once } from 'node:events';
import { connect, createServer, type Server as Listener, type Socket } from 'node:net';
import { LOOPBACK } from './ports.js';
import { seededRandom } from './seeded-random.js';

type Direction = 'requests' | 'replies';

export type Fault =
  | { readonly mode: 'pass' }
  /** Everything arrives this much later, give or take the jitter, which is 0 by default. */
  | { readonly mode: 'delay'; readonly ms: number; readonly jitterMs?: number }
  /** Nothing arrives, also on new connections, and nothing is lost: it arrives after heal(). */
  | { readonly mode: 'freeze' }
  /** One direction is lost. A connection that missed bytes can't go on and is reset by heal(). */
  | { readonly mode: 'lose'; readonly lose: Direction }
  /** Connections end with RST, new ones too. */
  | { readonly mode: 'reset' }
  /** Connections end with FIN, new ones too, as if the server had closed them. */
  | { readonly mode: 'cut' };

export interface FaultProxyOptions {
  /** Of the jitter. Default: 1. */
  readonly seed?: number;
}

type Matches = (chunk: Buffer) => boolean;

export class FaultProxy {
  readonly port: number;
  readonly #listener: Listener;
  readonly #random: () => number;
  readonly #links = new Set<Link>();
  readonly #traps = new Set<Trap>();
  #fault: Fault = { mode: 'pass' };
  #target: number;

  static async start(target: number, options: FaultProxyOptions = {}): Promise<FaultProxy> {
    // Half open: a FIN goes through the queue like everything else.
    const listener = createServer({ allowHalfOpen: true, noDelay: true });
    listener.listen({ port: 0, host: LOOPBACK, exclusive: true });
    await once(listener, 'listening');
    return new FaultProxy(listener, target, options.seed ?? 1);
  }

  private constructor(listener: Listener, target: number, seed: number) {
    const address = listener.address();
    this.port = typeof address === 'object' && address !== null ? address.port : 0;
    this.#listener = listener;
    this.#random = seededRandom(seed);
    this.#target = target;
    listener.on('connection', (client) => this.#accept(client));
  }

  /** Holds for connections that are open and for new ones, until it is called again. */
  set(fault: Fault): void {
    this.#fault = fault;
    for (const link of [...this.#links]) this.#apply(link);
  }

  /** New connections go to another server; those that are open stay where they are. */
  retarget(target: number): void {
    this.#target = target;
  }

  /** Ends every fault; a loseReplyOf() that has not met its request yet rejects. */
  heal(): void {
    this.#disarm('healed');
    this.set({ mode: 'pass' });
  }

  /**
   * Loses the reply of the next request with a chunk that matches. The server has carried the request out by the time
   * this resolves, and the client sees its connection reset. All that the server had not answered yet on that
   * connection is carried out without a reply as well. Rejects when the server goes away before it answers.
   */
  loseReplyOf(matches: Matches): Promise<void> {
    const trap = new Trap(matches);
    this.#traps.add(trap);
    return trap.done;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#disarm('closed');
    for (const link of [...this.#links]) link.destroy();
    const closed = once(this.#listener, 'close');
    this.#listener.close();
    await closed;
  }

  #accept(client: Socket): void {
    const link = new Link(client, connect({ port: this.#target, host: LOOPBACK, allowHalfOpen: true, noDelay: true }), {
      fault: () => this.#fault,
      delayMs: () => this.#delayMs(),
      trapFor: (request) => this.#trapFor(request),
      closed: () => this.#links.delete(link),
    });
    this.#links.add(link);
    this.#apply(link);
  }

  #apply(link: Link): void {
    if (this.#fault.mode === 'reset') link.reset();
    else if (this.#fault.mode === 'cut') link.cut();
    else if (this.#fault.mode === 'pass' && link.missedBytes) link.reset();
    else link.flush();
  }

  #delayMs(): number {
    if (this.#fault.mode !== 'delay') return 0;
    const { ms, jitterMs = 0 } = this.#fault;
    return ms + (this.#random() * 2 - 1) * jitterMs;
  }

  #trapFor(request: Buffer): Trap | undefined {
    const trap = [...this.#traps].find(({ matches }) => matches(request));
    if (trap !== undefined) this.#traps.delete(trap);
    return trap;
  }

  #disarm(what: string): void {
    for (const trap of this.#traps) trap.fail(`the proxy was ${what} before such a request came`);
    this.#traps.clear();
  }
}

/** Waits for one request whose reply is to be lost. */
class Trap {
  readonly matches: Matches;
  readonly done: Promise<void>;
  #settle: { resolve: () => void; reject: (error: Error) => void } | undefined;

  constructor(matches: Matches) {
    this.matches = matches;
    this.done = new Promise((resolve, reject) => {
      this.#settle = { resolve, reject };
    });
    // A test that failed on its way to awaiting this should report that failure, not an unhandled rejection.
    this.done.catch(() => undefined);
  }

  succeed(): void {
    this.#settle?.resolve();
  }

  fail(message: string): void {
    this.#settle?.reject(new Error(message));
  }
}

/** What a connection asks the proxy. */
interface Network {
  readonly fault: () => Fault;
  readonly delayMs: () => number;
  readonly trapFor: (request: Buffer) => Trap | undefined;
  readonly closed: () => void;
}

/** A connection of a client and the one to the server that was made for it. */
class Link {
  readonly #client: Socket;
  readonly #server: Socket;
  readonly #requests: Lane;
  readonly #replies: Lane;
  /** Set once the request has been forwarded whose reply is to be lost. */
  #trap: Trap | undefined;
  #replySwallowed = false;

  constructor(client: Socket, server: Socket, network: Network) {
    this.#client = client;
    this.#server = server;
    this.#requests = new Lane('requests', network, (item) => {
      if (item instanceof Buffer) this.#trap ??= network.trapFor(item);
      deliver(item, server);
    });
    this.#replies = new Lane('replies', network, (item) => {
      if (this.#trap === undefined) deliver(item, client);
      else if (item instanceof Buffer) this.#swallow();
      else server.destroy();
    });
    feed(client, this.#requests);
    feed(server, this.#replies);
    server.once('close', () => this.#springTrap());
    for (const [socket, other] of [[client, server] as const, [server, client] as const]) {
      socket.once('close', () => {
        if (other.closed) network.closed();
      });
    }
  }

  get missedBytes(): boolean {
    return this.#requests.missedBytes || this.#replies.missedBytes;
  }

  flush(): void {
    this.#requests.flush();
    this.#replies.flush();
  }

  reset(): void {
    this.#block();
    reset(this.#client);
    reset(this.#server);
  }

  /** What still comes is read and dropped: a socket that is closed with unread bytes sends RST instead of FIN. */
  cut(): void {
    this.#block();
    this.#client.end();
    this.#server.end();
  }

  destroy(): void {
    this.#block();
    this.#client.destroy();
    this.#server.destroy();
  }

  #block(): void {
    this.#requests.block();
    this.#replies.block();
  }

  /**
   * These bytes may answer an earlier request. A RST would make the server throw away what it has not read yet; after a
   * FIN it carries everything out before it closes.
   */
  #swallow(): void {
    this.#replySwallowed = true;
    this.#server.end();
  }

  #springTrap(): void {
    if (this.#trap === undefined) return;
    reset(this.#client);
    if (this.#replySwallowed) this.#trap.succeed();
    else this.#trap.fail('the connection to the server ended before it answered');
  }
}

/** Bytes, or how the sender ended its side. */
type Item = Buffer | 'fin' | 'rst';

/** One direction of one connection. */
class Lane {
  missedBytes = false;
  readonly #direction: Direction;
  readonly #network: Network;
  readonly #deliver: (item: Item) => void;
  readonly #queue: { readonly item: Item; readonly dueAt: number }[] = [];
  #timer: NodeJS.Timeout | undefined;
  #blocked = false;

  constructor(direction: Direction, network: Network, deliver: (item: Item) => void) {
    this.#direction = direction;
    this.#network = network;
    this.#deliver = deliver;
  }

  add(item: Item): void {
    if (this.#blocked) return;
    const fault = this.#network.fault();
    if (fault.mode === 'lose' && fault.lose === this.#direction) {
      this.missedBytes = true;
      return;
    }
    this.#queue.push({ item, dueAt: performance.now() + this.#network.delayMs() });
    this.flush();
  }

  /** Delivers what the network lets through now. What was delayed is due at once when there is no delay any more. */
  flush(): void {
    clearTimeout(this.#timer);
    const { mode } = this.#network.fault();
    if (mode === 'freeze') return;
    for (let next = this.#queue[0]; next !== undefined; next = this.#queue[0]) {
      const waitMs = mode === 'delay' ? next.dueAt - performance.now() : 0;
      if (waitMs > 0) {
        this.#timer = setTimeout(() => this.flush(), waitMs);
        return;
      }
      this.#queue.shift();
      this.#deliver(next.item);
    }
  }

  /** Nothing is delivered any more. */
  block(): void {
    this.#blocked = true;
    clearTimeout(this.#timer);
    this.#queue.length = 0;
  }
}

function feed(from: Socket, lane: Lane): void {
  from.on('data', (bytes) => lane.add(bytes));
  from.once('end', () => lane.add('fin'));
  from.on('error', () => lane.add('rst'));
}

function deliver(item: Item, to: Socket): void {
  if (to.destroyed) return;
  if (item === 'fin') to.end();
  else if (item === 'rst') reset(to);
  else to.write(item);
}

/**
 * A socket that is about to send FIN can't be reset: libuv refuses, Node.js takes it for closed all the same, and the process
 * spins for ever when it should exit (seen with Node.js 20).
 */
function reset(socket: Socket): void {
  if (socket.writableEnded && !socket.writableFinished) socket.destroy();
  else socket.resetAndDestroy();
}
