/** The steps on a line, with whatever may come between any two of them, made to come there. */
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { systemClock } from '../../../src/core/clock.js';
import type { Claim, LineKind, Session } from '../../../src/core/engine.js';
import { EngineError } from '../../../src/core/errors.js';
import { ALL } from '../../../src/core/line.js';
import { EtcdClient } from '../../../src/engines/etcd/client/client.js';
import type { Change } from '../../../src/engines/etcd/client/watches.js';
import { claimSuffix, Keys } from '../../../src/engines/etcd/keys.js';
import { Lines, type ClaimSpot } from '../../../src/engines/etcd/protocol.js';
import { openSession } from '../../../src/engines/etcd/session.js';
import { startEtcd } from '../../servers/etcd.js';
import { LOOPBACK } from '../../servers/ports.js';
import type { Server } from '../../servers/server.js';
import { until } from './kit.js';

/** For a busy machine: how long it takes is nobody's subject here. */
const CALLING = { withinMs: 20_000 };
const KEYS = new Keys('lines');

type Range = EtcdClient['range'];
type KeepAlive = EtcdClient['leaseKeepAlive'];

/** Does something between its own read and whatever it makes of that, and may hear of a keep-alive what it should not. */
class Interrupted extends EtcdClient {
  /** After the next read. */
  between: (() => Promise<unknown>) | undefined;
  /** Of each keep-alive. */
  termsBehind = 0n;

  override async range(...words: Parameters<Range>): ReturnType<Range> {
    const answer = await super.range(...words);
    const { between } = this;
    this.between = undefined;
    await between?.();
    return answer;
  }

  override async leaseKeepAlive(...words: Parameters<KeepAlive>): ReturnType<KeepAlive> {
    const { header, ...rest } = await super.leaseKeepAlive(...words);
    return { ...rest, header: header && { ...header, raftTerm: header.raftTerm - this.termsBehind } };
  }
}

let server: Server;
let client: Interrupted;
let lines: Lines;
let lease: bigint;

beforeAll(async () => {
  server = await startEtcd();
  client = new Interrupted({ members: [{ host: LOOPBACK, port: server.port }], random: () => 0 });
  lines = new Lines(client, CALLING);
  lease = (await client.leaseGrant(600n, CALLING)).id;
});

afterAll(async () => {
  client.close();
  await server.stop();
});

interface Wanted {
  readonly name: string;
  readonly id: string;
  readonly kind?: LineKind;
  readonly weight?: number;
  readonly capacity?: number;
  readonly wait?: boolean;
}

function spotOf({ name, id, kind = 'lock', weight = ALL, capacity = ALL, wait = true }: Wanted): ClaimSpot {
  const claim: Claim = { id, line: { kind, name }, serial: 1, weight, capacity, wait, note: '{}' };
  const prefix = KEYS.line(claim.line, capacity);
  const anyCapacity = kind === 'semaphore' ? KEYS.semaphores(name) : undefined;
  return { claim, lease, since: 0, prefix, anyCapacity, key: prefix + claimSuffix(lease, id) };
}

function enter(wanted: Wanted): ReturnType<Lines['enter']> {
  return lines.enter(spotOf(wanted));
}

async function revisionOf(entering: ReturnType<Lines['enter']>): Promise<bigint> {
  const entered = await entering;
  if (entered.state !== 'held') throw new Error(`it should hold, and is ${entered.state}`);
  return entered.footing.token;
}

async function isThere(wanted: Wanted): Promise<boolean> {
  const { kvs } = await client.range({ key: Buffer.from(spotOf(wanted).key) }, CALLING);
  return kvs.length === 1;
}

async function comeAndGo(key: string): Promise<void> {
  const name = Buffer.from(key);
  await client.txn({ success: [{ put: { key: name } }] }, { ...CALLING, repeatable: true });
  await client.txn({ success: [{ delete: { key: name } }] }, { ...CALLING, repeatable: true });
}

function opened(): Promise<Session> {
  const listener = { granted: () => {}, lost: () => {}, ended: () => {}, hinted: () => {} };
  const options = { id: 'beat', realm: '', ttlMs: 600_000, label: 'beat' };
  return openSession({ client, keys: KEYS, clock: systemClock, listener }, options);
}

describe('who tries, and saw room that another has taken meanwhile, is refused', () => {
  test('a permit beside a permit', async () => {
    const permit = { name: 'room', kind: 'semaphore', weight: 1, capacity: 1, wait: false } as const;
    client.between = () => expect(enter({ ...permit, id: 'quick' })).resolves.toMatchObject({ state: 'held' });
    expect(await enter({ ...permit, id: 'slow' })).toEqual({ state: 'refused' });
    expect(await isThere({ ...permit, id: 'slow' })).toBe(false);
  });

  test('a reader beside a writer', async () => {
    client.between = () =>
      expect(enter({ name: 'room', id: 'writer', wait: false })).resolves.toMatchObject({ state: 'held' });
    const reader = { name: 'room', id: 'reader', weight: 1, wait: false };
    expect(await enter(reader)).toEqual({ state: 'refused' });
    expect(await isThere(reader)).toBe(false);
  });
});

test('a leave of an earlier entry does not take away the claim that has entered again under the same id', async () => {
  const wanted = { name: 'again', id: 'same' };
  const { key } = spotOf(wanted);
  const first = await revisionOf(enter(wanted));
  expect(await lines.leave(key, first, [])).toBe(true);
  const second = await revisionOf(enter(wanted));
  expect(await lines.leave(key, first, [])).toBe(false);
  expect(await isThere(wanted)).toBe(true);
  expect(await lines.leave(key, second, [])).toBe(true);
});

describe('who comes to wait hears of a leave right after it came, however late it begins to watch', () => {
  test.each<[string, Omit<Wanted, 'id'>, number]>([
    ['a mutex', { name: 'watched' }, ALL],
    ['a permit', { name: 'watched', kind: 'semaphore', weight: 1, capacity: 1 }, 1],
    ['a reader', { name: 'watched-reader', weight: 1 }, ALL],
  ])('%s', async (_what, wanted, weightBefore) => {
    const blocker: Wanted = { ...wanted, weight: weightBefore, id: 'before' };
    const before = spotOf(blocker);
    const revision = await revisionOf(enter(blocker));
    const waiting = await enter({ ...wanted, id: 'behind' });
    if (waiting.state !== 'waiting') throw new Error(`it should wait, and is ${waiting.state}`);
    // Nobody else writes here, so this is the very next revision.
    await lines.leave(before.key, revision, []);
    const left = waiting.footing.token + 1n;
    const heard: bigint[] = [];
    const hear = (changes: readonly Change[]): void => void heard.push(...changes.map(({ kv }) => kv.modRevision));
    const watch = client.watches.watch(waiting.obstacle, { changed: hear, gap: () => {} });
    // Who began to watch too late hears of a later one: so there is always something to hear.
    await until('it hears of something', async () => {
      await comeAndGo(before.key);
      return heard.length > 0;
    });
    expect(heard[0]).toBe(left);
    watch.close();
  });
});

describe('a beat', () => {
  const NOTHING = { count: 0, held: 0, checksum: 0, unsettled: [] };

  test('of a lease that is gone says so, though to etcd that is no error', async () => {
    const session = await opened();
    const inboxes = { key: Buffer.from('lines/inbox/'), rangeEnd: Buffer.from('lines/inbox0') };
    for (const kv of (await client.range(inboxes, CALLING)).kvs) await client.leaseRevoke(kv.lease, CALLING);
    expect(await session.beat(NOTHING)).toEqual({ alive: false });
  });

  test('that a leader of an earlier term has answered counts for nothing: it may have been replaced', async () => {
    const session = await opened();
    expect(await session.beat(NOTHING)).toEqual({ alive: true });
    client.termsBehind = 1n;
    await expect(session.beat(NOTHING)).rejects.toBeInstanceOf(EngineError);
    client.termsBehind = 0n;
    expect(await session.beat(NOTHING)).toEqual({ alive: true });
    await session.close();
  });
});
