/**
 * Java services on Curator and we exclude each other, kind by kind: its mutex and ours, its read/write lock and ours. No Java
 * here: a client of our own makes nodes as Curator makes them, and judges them by its rules.
 */
import { randomUUID } from 'node:crypto';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { ZooKeeperClient } from '../../../src/engines/zookeeper/client/client.js';
import { zookeeper } from '../../../src/engines/zookeeper/index.js';
import { Holdfast } from '../../../src/index.js';
import type { Server } from '../../servers/server.js';
import { startZooKeeper } from '../../servers/zookeeper.js';
import { clientOf, queued, standing, until, urlOf } from './kit.js';

let server: Server;
let client: ZooKeeperClient & AsyncDisposable;

beforeAll(async () => {
  server = await startZooKeeper();
  client = await clientOf(server);
});

afterAll(async () => {
  await client.close();
  await server.stop();
});

type Kind = 'lock-' | '__READ__' | '__WRIT__';

/**
 * What Curator does with a path: a protected ephemeral sequential node, whose data is the address of its host. Children are
 * sorted by what stands behind the word of their kind, and by their whole name where it is not in it: that is behind all
 * numbers. A mutex and a writer hold as the first of all; a reader before the first writer.
 */
class CuratorPeer {
  readonly #path: string;
  readonly #kind: Kind;
  #node: string | undefined;

  constructor(path: string, kind: Kind) {
    this.#path = path;
    this.#kind = kind;
  }

  async enter(): Promise<void> {
    // Parents first, as creatingParentContainersIfNeeded does.
    await client.make(this.#path, 'container');
    const { path } = await client.create(`${this.#path}/_c_${randomUUID()}-${this.#kind}`, {
      data: Buffer.from('10.0.0.7'),
      mode: 'ephemeral-sequential',
    });
    this.#node = path.slice(path.lastIndexOf('/') + 1);
  }

  async holds(): Promise<boolean> {
    const children = [...(await client.getChildren(this.#path)).names].sort((a, b) =>
      this.#key(a) < this.#key(b) ? -1 : 1,
    );
    const own = children.indexOf(this.#node!);
    if (this.#kind !== '__READ__') return own === 0;
    const writer = children.findIndex((name) => name.includes('__WRIT__'));
    return own !== -1 && (writer === -1 || own < writer);
  }

  async leave(): Promise<void> {
    await client.delete(`${this.#path}/${this.#node}`);
  }

  #key(node: string): string {
    const words = this.#kind === 'lock-' ? ['lock-'] : ['__READ__', '__WRIT__'];
    for (const word of words) {
      const at = node.lastIndexOf(word);
      if (at !== -1) return node.slice(at + word.length);
    }
    return node;
  }
}

async function peer(name: string, kind: Kind): Promise<CuratorPeer> {
  const made = new CuratorPeer(`/holdfast/lock/${name}`, kind);
  await made.enter();
  return made;
}

const ours = (): Holdfast => new Holdfast(urlOf(server));

describe('its mutex and ours', () => {
  test('it waits while we hold, and holds when we release', async () => {
    await using locks = ours();
    const lease = await locks.mutex('ours-first').acquire();
    const theirs = await peer('ours-first', 'lock-');
    expect(await theirs.holds()).toBe(false);
    expect(await standing(locks.mutex('ours-first'))).toEqual({ held: 1, waiting: 1 });
    await lease.release();
    expect(await theirs.holds()).toBe(true);
    expect(await standing(locks.mutex('ours-first'))).toEqual({ held: 1, waiting: 0 });
    await theirs.leave();
  });

  test('we wait while it holds, refuse to try, and hold when it is gone, with a larger token', async () => {
    await using locks = ours();
    const lock = locks.mutex('theirs-first');
    const theirs = await peer('theirs-first', 'lock-');
    expect(await theirs.holds()).toBe(true);
    expect(await lock.tryAcquire()).toBeUndefined();
    const [seen] = (await lock.inspect()).claims;
    expect(seen).toMatchObject({ state: 'held', label: 'unknown' });
    const waiting = lock.acquire();
    await queued(lock, 1);
    await theirs.leave();
    const lease = await waiting;
    expect(lease.token).toBeGreaterThan(seen!.token!);
    expect(await (await peer('theirs-first', 'lock-')).holds()).toBe(false);
  });

  test('one without protection counts too, and whoever goes from the middle of the line wakes nobody wrongly', async () => {
    await using locks = ours();
    const lock = locks.mutex('middle');
    const [first, second] = [await peer('middle', 'lock-'), await peer('middle', 'lock-')];
    const { path } = await client.create('/holdfast/lock/middle/lock-', { mode: 'ephemeral-sequential' });
    const waiting = lock.acquire();
    await queued(lock, 3);
    await client.delete(path);
    await second.leave();
    await until('only the first is before us', async () => (await standing(lock)).waiting === 1);
    expect(await first.holds()).toBe(true);
    await first.leave();
    await (await waiting).release();
  });

  test('the path may be what the Java service has already', async () => {
    await using locks = new Holdfast(zookeeper(urlOf(server), { key: (name) => `/services/${name}/mutex` }));
    const lease = await locks.mutex('mailer').acquire();
    const theirs = new CuratorPeer('/services/mailer/mutex', 'lock-');
    await theirs.enter();
    expect(await theirs.holds()).toBe(false);
    await lease.release();
    expect(await theirs.holds()).toBe(true);
    expect(await locks.mutex('mailer').tryAcquire()).toBeUndefined();
  });
});

describe('its read/write lock and ours', () => {
  test('its writer waits for our readers, its readers do not', async () => {
    await using locks = ours();
    const { read } = locks.rwLock('our-readers');
    const lease = await read.acquire();
    const reader = await peer('our-readers', '__READ__');
    expect(await reader.holds()).toBe(true);
    const writer = await peer('our-readers', '__WRIT__');
    expect(await writer.holds()).toBe(false);
    await reader.leave();
    await lease.release();
    expect(await writer.holds()).toBe(true);
    await writer.leave();
  });

  test('its readers and writers wait for our writer', async () => {
    await using locks = ours();
    const lease = await locks.rwLock('our-writer').write.acquire();
    const [reader, writer] = [await peer('our-writer', '__READ__'), await peer('our-writer', '__WRIT__')];
    expect([await reader.holds(), await writer.holds()]).toEqual([false, false]);
    await lease.release();
    expect([await reader.holds(), await writer.holds()]).toEqual([true, false]);
    await reader.leave();
    expect(await writer.holds()).toBe(true);
    await writer.leave();
  });

  test('our readers wait for its writer and not for its readers; our writer waits for both', async () => {
    await using locks = ours();
    await using others = ours();
    const { read, write } = locks.rwLock('their-writer');
    const reader = await peer('their-writer', '__READ__');
    await using beside = await read.acquire();
    expect(beside.held).toBe(true);
    expect(await others.rwLock('their-writer').write.tryAcquire()).toBeUndefined();
    const writer = await peer('their-writer', '__WRIT__');
    const behind = others.rwLock('their-writer').read.acquire();
    await queued(read, 2);
    await beside.release();
    await reader.leave();
    expect(await writer.holds()).toBe(true);
    const last = write.acquire();
    await queued(read, 2);
    await writer.leave();
    await (await behind).release();
    await (await last).release();
  });

  test('a downgrade lets its readers in, keeps its writers out, and keeps token and place', async () => {
    await using locks = ours();
    const lock = locks.rwLock('downgraded');
    const lease = await lock.write.acquire();
    const [reader, writer] = [await peer('downgraded', '__READ__'), await peer('downgraded', '__WRIT__')];
    expect(await reader.holds()).toBe(false);
    const { names } = await client.getChildren('/holdfast/lock/downgraded');
    const before = names.find((name) => name.includes('__WRIT__') && name.endsWith('0000000000'));
    const reading = await lease.downgrade();
    expect(await reader.holds()).toBe(true);
    expect(await writer.holds()).toBe(false);
    const { claims } = await lock.read.inspect();
    expect(claims.map(({ state, weight }) => [state, weight === 1])).toEqual([
      ['held', true],
      ['held', true],
      ['waiting', false],
    ]);
    expect(claims[0]!.token! / 1_024n).toBe(lease.token / 1_024n);
    const after = (await client.getChildren('/holdfast/lock/downgraded')).names;
    expect(after).toContain(before!.replace('__WRIT__', '__READ__'));
    expect(after).not.toContain(before);
    await reader.leave();
    await reading.release();
    expect(await writer.holds()).toBe(true);
    await writer.leave();
  });

  test('kind by kind: a mutex and a write lock of ours exclude each other, whatever Curator makes of them', async () => {
    await using locks = ours();
    await using others = ours();
    const lease = await locks.mutex('both').acquire();
    expect(await others.rwLock('both').write.tryAcquire()).toBeUndefined();
    expect(await others.rwLock('both').read.tryAcquire()).toBeUndefined();
    // In one instance, too, a claim is never passed on from a mutex to a write lock: its node would say the wrong word.
    const waiting = locks.rwLock('both').write.acquire();
    await queued(locks.mutex('both'), 1);
    const { names } = await client.getChildren('/holdfast/lock/both');
    expect(new Set(names.map((name) => /lock-|__WRIT__/.exec(name)?.[0]))).toEqual(new Set(['__WRIT__', 'lock-']));
    await lease.release();
    await (await waiting).release();
  });
});

test('numbers go round after 2^31, and the order stays', async () => {
  const { byNumber, parseNode } = await import('../../../src/engines/zookeeper/keys.js');
  const numbers = ['2147483646', '2147483647', '-2147483648', '-2147483647'];
  const nodes = numbers.map((number) => parseNode(`_c_x-lock-${number}`, 'lock')!);
  expect([nodes[2]!, nodes[0]!, nodes[3]!, nodes[1]!].sort(byNumber)).toEqual(nodes);
});
