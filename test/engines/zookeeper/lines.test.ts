/** The steps on a line and in a mailbox, with whatever may come between any two of them, made to come there. */
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { Claim, LineKind } from '../../../src/core/engine.js';
import { ALL } from '../../../src/core/line.js';
import { ZooKeeperClient } from '../../../src/engines/zookeeper/client/client.js';
import { Lines } from '../../../src/engines/zookeeper/protocol.js';
import { post } from '../../../src/engines/zookeeper/mailbox.js';
import { WITHIN_MS } from '../../servers/lines.js';
import { LOOPBACK } from '../../servers/ports.js';
import type { Server } from '../../servers/server.js';
import { startZooKeeper } from '../../servers/zookeeper.js';

type GetChildren = ZooKeeperClient['getChildren'];
type GetData = ZooKeeperClient['getData'];

/** Does something between its own read and whatever it makes of that. */
class Interrupted extends ZooKeeperClient {
  /** After the next read. */
  between: (() => Promise<unknown>) | undefined;

  override async getChildren(...words: Parameters<GetChildren>): ReturnType<GetChildren> {
    return this.#interrupted(await super.getChildren(...words));
  }

  override async getData(...words: Parameters<GetData>): ReturnType<GetData> {
    return this.#interrupted(await super.getData(...words));
  }

  async #interrupted<T>(answer: T): Promise<T> {
    const { between } = this;
    this.between = undefined;
    await between?.();
    return answer;
  }
}

let server: Server;
let client: Interrupted;
let other: Interrupted;

beforeAll(async () => {
  server = await startZooKeeper();
  [client, other] = await Promise.all([connected(), connected()]);
});

afterAll(async () => {
  await Promise.all([client.close(), other.close()]);
  await server.stop();
});

async function connected(): Promise<Interrupted> {
  const servers = [{ host: LOOPBACK, port: server.port }];
  const made = new Interrupted({ servers, timeoutMs: 60_000, random: () => 0, pings: true });
  await made.open(WITHIN_MS);
  return made;
}

interface Wanted {
  readonly id: string;
  readonly kind?: LineKind;
  readonly weight?: number;
  readonly capacity?: number;
}

function enter(by: ZooKeeperClient, line: string, wanted: Wanted): ReturnType<Lines['enter']> {
  const { id, kind = 'lock', weight = ALL, capacity = ALL } = wanted;
  const claim: Claim = { id, line: { kind, name: 'room' }, serial: 1, weight, capacity, wait: false, note: '{}' };
  return new Lines(by).enter({ claim, line }, '{}', false);
}

const PERMIT = { kind: 'semaphore', weight: 1, capacity: 1 } as const;

describe('who tries, and saw room that another has taken meanwhile, is refused and leaves nothing behind', () => {
  test.each<[string, Omit<Wanted, 'id'>, Omit<Wanted, 'id'>]>([
    ['a permit beside a permit', PERMIT, PERMIT],
    ['a reader beside a writer', { weight: 1 }, {}],
    ['a writer beside a reader', {}, { weight: 1 }],
    ['a mutex beside a mutex', {}, {}],
  ])('%s', async (what, slow, quick) => {
    const line = `/lines/${what.replaceAll(' ', '-')}`;
    await client.make(line, 'container');
    client.between = () =>
      expect(enter(other, line, { ...quick, id: 'quick' })).resolves.toMatchObject({ state: 'held' });
    expect(await enter(client, line, { ...slow, id: 'slow' })).toEqual({ state: 'refused' });
    const { names } = await client.getChildren(line);
    expect(names).toEqual([expect.stringContaining('quick')]);
  });
});

test('two who write into one mailbox at once: both letters are in it', async () => {
  const at = { mailbox: '/mailbox', claim: '/claim' };
  for (const path of Object.values(at)) await client.create(path, { data: Buffer.from('[]'), mode: 'persistent' });
  client.between = () => expect(post(other, at, ['one', 'quick'])).resolves.toBe(true);
  expect(await post(client, at, ['two', 'slow'])).toBe(true);
  expect(JSON.parse((await client.getData('/mailbox')).data.toString())).toEqual([
    ['one', 'quick'],
    ['two', 'slow'],
  ]);
});
