/**
 * What is fuzzed: everything that reads what others have written. Each target says what may come out; anything else is thrown on,
 * and the runner prints the input that did it. A new parser or handler gets a line in TARGETS.
 */
import { parseList, parseRun } from '../../src/cli/options.js';
import { Failure } from '../../src/cli/failure.js';
import { parseDuration } from '../../src/core/duration.js';
import { asHoldfastError, EngineError, HoldfastError, LeaseLostError } from '../../src/core/errors.js';
import { json, maskCredentials, printable } from '../../src/cli/text.js';
import { lineView } from '../../src/core/view.js';
import { headOf, MOST } from '../../src/engines/etcd/client/frames.js';
import * as etcd from '../../src/engines/etcd/client/messages.js';
import { frame as etcdFrame } from '../../src/engines/etcd/client/frames.js';
import { claimIdIn, Keys, permitCapacity } from '../../src/engines/etcd/keys.js';
import { readAll, written as etcdWritten } from '../../src/engines/etcd/protocol.js';
import { flag, ReplyParser } from '../../src/engines/memcached/client/replies.js';
import { lockKey } from '../../src/engines/memcached/keys.js';
import { HeardOf } from '../../src/engines/redis/redlock/heard-of.js';
import { frame as zkFrame, HEAD } from '../../src/engines/zookeeper/client/frames.js';
import { Reader, Writer } from '../../src/engines/zookeeper/client/jute.js';
import * as zk from '../../src/engines/zookeeper/client/messages.js';
import { ZooKeeperError } from '../../src/engines/zookeeper/client/status.js';
import { nameOf, parseNode, Paths } from '../../src/engines/zookeeper/keys.js';
import { lettersIn } from '../../src/engines/zookeeper/mailbox.js';
import { claimsIn, written } from '../../src/engines/zookeeper/protocol.js';
import { fencedFetch, parseToken } from '../../src/fence/header.js';
import { newestIn } from '../../src/fence/lua.js';
import { Awaited } from '../../src/kit/awaited.js';
import { decodeName, encodeName } from '../../src/kit/encoded-name.js';
import { foreignBigint, foreignFields, foreignJson, foreignReason } from '../../src/kit/foreign-json.js';
import { FrameReader, WireError } from '../../src/kit/frame-reader.js';
import { SwappedRegisters } from '../../src/kit/swapped-registers.js';
import { engineFromUrl } from '../../src/schemes.js';
import { systemClock } from '../../src/core/clock.js';
import type { Mutator } from './mutate.js';

export interface Target {
  /** One input, made and read. Returns it, for the report; throws what must not happen. */
  readonly run: (mutator: Mutator) => unknown;
  /** The errors that are an answer. */
  readonly errors: readonly (abstract new (...words: never[]) => Error)[];
}

const HEADER = { clusterId: 1n, memberId: 2n, revision: 2n ** 40n, raftTerm: 3n };
const KV = { key: Buffer.from('holdfast/lock/a/7-x'), createRevision: 9n, value: Buffer.from('{}'), lease: 7n };
const ETCD = [
  etcd.RangeResponse.encode({ header: HEADER, kvs: [KV, KV], more: true, count: 2n }),
  etcd.TxnResponse.encode({ header: HEADER, succeeded: true, responses: [{ put: {} }, { range: { kvs: [KV] } }] }),
  etcd.WatchResponse.encode({ header: HEADER, watchId: 1n, events: [{ type: 1, kv: KV }], cancelReason: 'x' }),
  etcd.LeaseGrantResponse.encode({ header: HEADER, id: 7n, ttl: 10n }),
  etcd.LeaseTimeToLiveResponse.encode({ header: HEADER, id: 7n, ttl: 3n, keys: ['a', 'b'] }),
  etcd.AuthenticateResponse.encode({ header: HEADER, token: 'abc.1' }),
];
const ETCD_MESSAGES = [
  etcd.RangeResponse,
  etcd.TxnResponse,
  etcd.WatchResponse,
  etcd.LeaseGrantResponse,
  etcd.LeaseKeepAliveResponse,
  etcd.LeaseTimeToLiveResponse,
  etcd.AuthenticateResponse,
];

function stat(writer: Writer): Writer {
  for (let field = 0; field < 4; field += 1) writer.long(9n);
  return writer.int(1).int(2).int(3).long(5n).int(0).int(0).long(9n);
}

function reply(): Writer {
  return new Writer().int(1).long(5n).int(0);
}

const ZOOKEEPER = [
  new Writer().int(0).int(4_000).long(7n).bytes(Buffer.alloc(16)).bool(false).finish(),
  stat(reply()).finish(),
  stat(reply().bytes(Buffer.from('[]'))).finish(),
  stat(reply().list(['_c_x-lock-0000000001', 'b'], (writer, text) => writer.text(text))).finish(),
  reply().int(zk.OP.create2).bool(false).int(0).text('/a').int(-1).bool(true).int(-1).finish(),
  reply().int(3).int(3).text('/a').finish(),
];
const ZOOKEEPER_READERS: readonly ((message: Buffer) => unknown)[] = [
  (message) => zk.readWelcome(message),
  ...[
    zk.readEvent,
    zk.readStat,
    zk.readSteps,
    (reader: Reader) => [reader.list((each) => each.text()), zk.readStat(reader)],
    (reader: Reader) => [reader.bytes(), zk.readStat(reader)],
  ].map((read) => (message: Buffer) => {
    const reader = new Reader(message);
    return [zk.readHeader(reader), read(reader)];
  }),
];

const MEMCACHED = [
  'HD c17\r\n',
  'VA 3 c1\r\nabc\r\n',
  'EN\r\n',
  'NS\r\n',
  'VA 16\r\n1700000000000000\r\n',
  'CLIENT_ERROR no\r\n',
];
const URLS = [
  ...['redis://u:PLANTED@h:1/2?epochGuard=false', 'etcds://u:PLANTED@h1,h2:3?ca=/x', 'zookeeper://h1,[::1]:2/a/b'],
  ...[
    'memcached://a,b:3',
    'postgres://u:PLANTED@h/d?sslmode=require',
    'mysql://u:PLANTED@h/d?strategy=row',
    'sqlite:./a.db',
  ],
  ...['redlock://a,b,c', 'redis+sentinel://a,b/m', 'redis+cluster://a', 'memory:x'],
];
/** Where one stands that a user could have written; faults move it elsewhere, too. */
const HAS_PASSWORD = /^[a-z+]+:\/\/u:PLANTED@(?!.*PLANTED)/s;
const JSONS = [
  ...[
    '{"weight":1,"note":"{}","since":1,"name":"a"}',
    '{"note":"{\\"label\\":\\"x\\"}","name":"a","token":"5","since":1}',
  ],
  ...[
    '{"value":"x","token":"5","at":1,"maxRead":"1","maxWrite":"5"}',
    '[["a","b"]]',
    'null',
    '"x"',
    '1e999',
    '[[[[]]]]',
  ],
];
const NAMES = [
  'order:42',
  'a/b',
  '%2E',
  '..',
  'ünï',
  'a%20b',
  '_c_x-lock-0000000001',
  '_c_x-permit-1-of-2-0000000002',
  '7f-a',
  '2/7f-a',
];
/** Two claims that are awaited, and their nonces. */
const AWAITED = { 'x-1': 'n0nce-of-x-1', 'x-2': 'n0nce-of-x-2' } as const;
const MESSAGES = [
  'granted x-1 17',
  'evicted x-1 why',
  'evicted x-2',
  'granted',
  ...Object.keys(AWAITED).flatMap((id) =>
    Object.values(AWAITED).map((nonce) => `granted ${id} 1700000000000000 ${nonce}`),
  ),
];
const REFUSALS = [
  '{"code":"HOLDFAST_STALE_TOKEN","lock":"a","token":"5","newest":"6"}',
  '{"code":"HOLDFAST_STALE_TOKEN"}',
  '{"code":1}',
  'Precondition Failed',
];
const WORDS = [
  'ERR HOLDFAST_STALE_TOKEN 0000000000000000017 script: abc, on @user_script:1.',
  'redis://u:PLANTED@h:1 refused, postgres://a:b@c/d too',
  'a job\r\n\u{9b}31m\u{2028}\u{2066}',
  '://x://x@://y',
];
/** What a terminal or a log would take for more than text. */
const UNPRINTABLE = /[\p{Cc}\p{Zl}\p{Zp}\p{Bidi_Control}]/u;
const HEADERS = ['1837856355699712000', '17; shared', ' 5 ', '0', '9223372036854775807'];
const DURATIONS = ['250ms', '10s', '5m', '1h', '7d', '1.5s', '0', '596h'];
const ARGUMENTS = [
  'run',
  'a',
  '--',
  'true',
  '-w',
  '5s',
  '-n',
  '--permits',
  '2',
  '--of',
  '3',
  '--ttl=1s',
  '--url',
  'memory:',
  '-s',
  '--json',
];

const must = (sound: boolean, what: string): void => {
  if (!sound) throw new Error(what);
};

function inPieces(mutator: Mutator, stream: Buffer, push: (piece: Buffer) => unknown): void {
  for (let at = 0; at < stream.length;) {
    const size = 1 + mutator.below(stream.length);
    push(stream.subarray(at, at + size));
    at += size;
  }
}

/** What a session that awaits both claims takes for granted after a message. */
function grantedBy(message: string): readonly string[] {
  const granted: string[] = [];
  const nonces: string[] = Object.values(AWAITED);
  const listener = {
    granted: (id: string, token: bigint) => void granted.push(`${id} ${token}`),
    lost: () => must(false, 'a claim was lost by a message'),
    ended: () => must(false, 'a session ended by a message'),
    hinted: () => {},
  };
  const awaited = new Awaited(listener, () => nonces.shift()!);
  for (const id of Object.keys(AWAITED)) awaited.add(id);
  awaited.heard(message);
  awaited.heard(message);
  return granted;
}

/** The same replies, however the stream is cut; or the same refusal. */
function repliesIn(pieces: readonly Buffer[]): string {
  const parser = new ReplyParser();
  const replies: unknown[] = [];
  try {
    for (const piece of pieces) for (const reply of parser.push(piece)) replies.push([reply, flag(reply, 'c')]);
  } catch (error) {
    must(error instanceof Error && error.message.startsWith('memcached sent'), String(error));
    return (error as Error).message;
  }
  return JSON.stringify(replies);
}

const HEARD_OF = new HeardOf(2);
const KEYS = new Keys('holdfast');
const PATHS = new Paths('holdfast');

export const TARGETS: Readonly<Record<string, Target>> = {
  'etcd-messages': {
    errors: [WireError],
    run: (mutator) => {
      const input = mutator.bytes(ETCD);
      const message = mutator.one(ETCD_MESSAGES).decode(input, MOST.keys.items);
      if ('kvs' in message) readAll(message.kvs);
      return input;
    },
  },
  'etcd-frames': {
    errors: [WireError],
    run: (mutator) => {
      const input = mutator.bytes(ETCD.map(etcdFrame));
      const reader = new FrameReader(headOf(MOST.numbers.bytes));
      inPieces(mutator, input, (piece) => reader.push(piece));
      return input;
    },
  },
  'zookeeper-messages': {
    errors: [WireError, ZooKeeperError],
    run: (mutator) => {
      const input = mutator.bytes(ZOOKEEPER);
      mutator.one(ZOOKEEPER_READERS)(input);
      return input;
    },
  },
  'zookeeper-frames': {
    errors: [WireError],
    run: (mutator) => {
      const input = mutator.bytes(ZOOKEEPER.map(zkFrame));
      const reader = new FrameReader(HEAD);
      inPieces(mutator, input, (piece) => reader.push(piece));
      return input;
    },
  },
  'memcached-replies': {
    errors: [],
    run: (mutator) => {
      const input = mutator.bytes(MEMCACHED.map((text) => Buffer.from(text, 'latin1')));
      const pieces: Buffer[] = [];
      inPieces(mutator, input, (piece) => pieces.push(piece));
      must(repliesIn(pieces) === repliesIn([input]), 'another meaning in pieces');
      return input;
    },
  },
  urls: {
    errors: [],
    run: (mutator) => {
      const input = mutator.text(URLS);
      try {
        engineFromUrl(input);
      } catch (error) {
        must(error instanceof HoldfastError, String(error));
        must(!HAS_PASSWORD.test(input) || !(error as Error).message.includes('PLANTED'), 'the password is shown');
      }
      return input;
    },
  },
  'foreign-json': {
    errors: [],
    run: (mutator) => {
      const input = mutator.text(JSONS);
      foreignJson(input);
      const { token } = foreignFields(input);
      const number = foreignBigint(token);
      must(number === undefined || (number >= 0n && number < 2n ** 63n), 'a number out of range');
      must(foreignReason(input).isWellFormed(), 'a reason that is no text');
      const [data, says] = [Buffer.from(input), etcdWritten(Buffer.from(input))];
      const note = written(data)?.note ?? says?.note;
      const claim = { id: 'x', state: 'held', weight: 1, token: 1n, since: 0, note } as const;
      JSON.stringify(lineView({ kind: 'lock', name: 'a', capacity: 1, claims: [claim] }, () => undefined));
      must(({} as Record<string, unknown>)['polluted'] === undefined, 'a prototype was changed');
      return input;
    },
  },
  registers: {
    errors: [],
    run: (mutator) => {
      const text = mutator.text(JSONS);
      let swaps = 0;
      const texts = { look: async () => ({ text, version: 0 }), swap: async () => (swaps += 1) > 0 };
      const registers = new SwappedRegisters(texts, systemClock);
      registers.write('a', 'v', 6n).catch((error: unknown) => must(error instanceof HoldfastError, String(error)));
      return text;
    },
  },
  names: {
    errors: [],
    run: (mutator) => {
      const input = mutator.text(NAMES);
      const name = decodeName(input);
      must(name === undefined || encodeName(name) === input, 'two texts are one name');
      if (input.isWellFormed() && input !== '') {
        must(!/[/\s]/.test(encodeName(input)), 'a name leaves its place');
        must(
          !/[\s\0]/.test(lockKey('holdfast', input)) && lockKey('holdfast', input).length <= 250,
          'a key that is none',
        );
      }
      nameOf(input);
      claimIdIn(input);
      const capacity = permitCapacity(input);
      must(capacity === undefined || Number.isSafeInteger(capacity), 'a capacity that is none');
      for (const kind of ['lock', 'semaphore'] as const) {
        const claim = parseNode(input, kind);
        must(!claim || (claim.weight > 0 && claim.weight <= claim.capacity), 'a claim that there can’t be');
        KEYS.lineOf(`holdfast/${kind}/${input}`);
        PATHS.lineOf(`/holdfast/${kind}/${input}`);
      }
      claimsIn([input, ...NAMES], 'lock');
      return input;
    },
  },
  // What is pushed to sessions of Redis and PostgreSQL.
  'pushed-messages': {
    errors: [],
    run: (mutator) => {
      const input = mutator.text(MESSAGES);
      const [what, id, token, nonce, ...rest] = input.split(' ');
      const known = Object.entries(AWAITED).some(([claim, its]) => claim === id && its === nonce);
      const isGrant = what === 'granted' && known && /^\d{1,19}$/.test(token!) && rest.length === 0;
      const granted = grantedBy(input);
      must(granted.length === (isGrant ? 1 : 0), `${granted.length} are granted`);
      if (isGrant) must(granted[0] === `${id} ${BigInt(token!)}`, 'another one is granted');
      return input;
    },
  },
  'redlock-messages': {
    errors: [],
    run: (mutator) => {
      const input = mutator.text([...MESSAGES, ...NAMES]);
      if (HEARD_OF.again(input)) must(/^[\w.:-]{1,128}$/.test(input), 'what is no claim counts');
      must(HEARD_OF.size <= 1_000, 'too much is remembered');
      return input;
    },
  },
  mailbox: {
    errors: [],
    run: (mutator) => {
      const input = mutator.text(JSONS);
      for (const [id, reason] of lettersIn(Buffer.from(input)))
        must(typeof id === 'string' && foreignReason(reason).length <= 1_024, 'a letter that is none');
      return input;
    },
  },
  'http-refusals': {
    errors: [],
    run: (mutator) => {
      const input = mutator.text(REFUSALS);
      const refusing = async (): Promise<Response> => new Response(Buffer.from(input), { status: 412 });
      fencedFetch(5n, { fetch: refusing })('http://service.example').catch((error: unknown) =>
        must(error instanceof HoldfastError, String(error)),
      );
      return input;
    },
  },
  'server-words': {
    errors: [],
    run: (mutator) => {
      const input = mutator.text(WORDS);
      const newest = newestIn(new Error(input));
      must(newest === undefined || newest >= 0n, 'a token that is none');
      for (const error of [
        new EngineError(input),
        asHoldfastError(new Error(input), 'inspect'),
        new LeaseLostError('a', { reason: 'evicted', detail: input }),
      ])
        must(!UNPRINTABLE.test(error.message), 'a message that is more than text');
      for (const text of [printable(input), json(input).trimEnd(), json({ [input]: input }).trimEnd()])
        must(!UNPRINTABLE.test(text), 'a line that is more than text');
      maskCredentials(input);
      return input;
    },
  },
  'token-header': {
    errors: [HoldfastError],
    run: (mutator) => {
      const input = mutator.text(HEADERS);
      const { token } = parseToken(input)!;
      must(token > 0n && token < 2n ** 63n, 'a token out of range');
      return input;
    },
  },
  durations: {
    errors: [HoldfastError],
    run: (mutator) => {
      const input = mutator.text(DURATIONS);
      const ms = parseDuration(input, 'ttl');
      must(ms >= 0 && Number.isFinite(ms), 'a duration that is none');
      return input;
    },
  },
  'command-line': {
    errors: [Failure, HoldfastError],
    run: (mutator) => {
      const words = Array.from({ length: mutator.below(8) }, () => mutator.text(ARGUMENTS));
      if (mutator.below(2) === 0) parseRun(words);
      else parseList(words, { operands: [0, 1], synopsis: 'ls [prefix]' });
      return words;
    },
  },
};
