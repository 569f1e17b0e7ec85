/** A log line must say which call it was: every rejection has the frame of its caller, who may await it or not. */
import { describe, expect, test } from 'vitest';
import { Holdfast, type Lease, type WriteLease } from '../../src/index.js';
import { lose } from '../../src/testing/index.js';
import { ScriptedEngine } from './scripted-engine.js';
import { VirtualClock } from './virtual-clock.js';

interface Calls {
  readonly busy: Holdfast;
  readonly broken: Holdfast;
  readonly closed: Holdfast;
  /** Another has had the lock since, and has written its register. */
  readonly stale: Lease;
  readonly lost: WriteLease;
}

const CALLS: Readonly<Record<string, (calls: Calls) => Promise<unknown>>> = {
  'acquire that times out': ({ busy }) => busy.mutex('held').acquire({ timeout: 20 }),
  'acquire at one try': ({ busy }) => busy.mutex('held').acquire({ timeout: 0 }),
  'run that times out': ({ busy }) => busy.mutex('held').run({ timeout: 20 }, () => {}),
  'all that times out': ({ busy }) => busy.all([busy.mutex('a'), busy.mutex('held')]).run({ timeout: 20 }, () => {}),
  'a campaign that times out': ({ busy }) => busy.election('held').campaign({ timeout: 20 }),
  'a lead that times out': ({ busy }) => busy.election('held').lead({ timeout: 20 }, () => {}),
  'a wrong option': ({ busy }) => busy.mutex('held').acquire({ timeout: 'soon' as '1s' }),
  'acquire of what is broken': ({ broken }) => broken.mutex('a').acquire(),
  'tryAcquire of what is broken': ({ broken }) => broken.mutex('a').tryAcquire(),
  'once of what is broken': ({ broken }) => broken.once('a', {}, () => {}),
  'tryAcquire of several that are broken': ({ broken }) =>
    broken.all([broken.mutex('a'), broken.mutex('b')]).tryAcquire(),
  'a campaign for what is broken': ({ broken }) => broken.election('a').campaign(),
  'a lead of what is closed': ({ closed }) => closed.election('a').lead(() => {}),
  'ready of what is broken': ({ broken }) => broken.ready(),
  'a register of what is broken': ({ broken }) => broken.register('a').get(),
  'to set a register without a lease': ({ broken }) => broken.register('a').set('v', {} as Lease),
  'to set a register by a token that is stale': ({ busy, stale }) => busy.register('stale').set('v', stale),
  'downgrade of a lease that is lost': async ({ lost }) => lost.downgrade(),
  'inspect of what is broken': ({ broken }) => first(broken.inspect()),
  'inspect of a lock of what is broken': ({ broken }) => broken.mutex('a').inspect(),
  'evict of what is broken': ({ broken }) => broken.evict('a', 'b'),
  'acquire of what is closed': ({ closed }) => closed.mutex('a').acquire(),
  'ready of what is closed': ({ closed }) => closed.ready(),
  'inspect of what is closed': ({ closed }) => first(closed.inspect()),
  'close with a wrong option': ({ closed }) => closed.close({ drain: 'soon' as '1s' }),
};

function first<T>(lines: AsyncIterable<T>): Promise<unknown> {
  return lines[Symbol.asyncIterator]().next();
}

/** Apart from each other: V8 finds those who await by itself, and knows nothing of those who do not. */
const WAYS: Readonly<Record<string, (call: () => Promise<unknown>) => Promise<Error>>> = {
  'and is awaited': async (call) => {
    const thisVeryCaller = async (): Promise<unknown> => await call();
    return await thisVeryCaller().then(() => expect.unreachable(), asError);
  },
  'and is caught': (call) => {
    const thisVeryCaller = (): Promise<Error> => call().then(() => expect.unreachable(), asError);
    return thisVeryCaller();
  },
};

function asError(thrown: unknown): Error {
  return thrown as Error;
}

describe.each(Object.keys(WAYS))(
  'the stack of a rejection has the frame of its caller: of a call that fails %s',
  (way) => {
    test.each(Object.keys(CALLS))('%s', async (name) => {
      await using holder = new Holdfast('memory:stacks');
      await using busy = new Holdfast('memory:stacks');
      const engine = new ScriptedEngine();
      engine.now({ connect: () => Promise.reject(new Error('NOPE')) });
      const source = { traits: { ...engine.traits, listing: true }, connect: () => engine.connect() };
      await using broken = new Holdfast(source, { ttl: '1s' });
      const closed = new Holdfast('memory:stacks');
      await closed.close();
      await using _lease = await holder.mutex('held').acquire();
      const stale = await busy.mutex('stale').acquire();
      await stale.release();
      await busy.mutex('stale').run((lease) => busy.register('stale').set('new', lease));
      const lost = await busy.rwLock('lost').write.acquire();
      lose(lost);
      const error = await WAYS[way]!(() => CALLS[name]!({ busy, broken, closed, stale, lost }));
      expect(error.stack).toContain('thisVeryCaller');
      expect(error.stack).toContain(error.message);
    });
  },
);

describe('the stack of a rejection', () => {
  test('of an engine that has fallen silent has the frame of a caller who does not await it', async () => {
    const clock = new VirtualClock();
    const engine = new ScriptedEngine();
    await using locks = new Holdfast(engine, { ttl: '9s', clock });
    await locks.mutex('a').tryAcquire();
    engine.hang();
    await clock.advance(7_000);
    const thisVeryCaller = (): Promise<Error> =>
      locks
        .mutex('b')
        .tryAcquire()
        .then(() => expect.unreachable(), asError);
    const failing = thisVeryCaller();
    await clock.advance(4_000);
    expect((await failing).stack).toContain('thisVeryCaller');
    engine.heal();
    const closing = locks.close();
    await clock.advance(9_000);
    await closing;
  });

  test('is its own for each of many that are told of one error', async () => {
    const engine = new ScriptedEngine();
    engine.now({ connect: () => Promise.reject(new Error('NOPE')) });
    await using broken = new Holdfast(engine, { ttl: '1s' });
    const one = async (): Promise<unknown> => await broken.mutex('a').tryAcquire();
    const other = async (): Promise<unknown> => await broken.mutex('b').tryAcquire();
    const [first, second] = await Promise.all([one().catch((e: Error) => e), other().catch((e: Error) => e)]);
    expect((first as Error).stack).toContain('one');
    expect((second as Error).stack).toContain('other');
    expect((first as Error).stack).not.toContain('other');
  });
});

test('a user’s own error and the reason of a signal are passed on as they are', async () => {
  await using locks = new Holdfast('memory:stacks-of-users');
  const own = new Error('mine');
  const { stack } = own;
  await expect(locks.mutex('a').run(() => Promise.reject(own))).rejects.toBe(own);
  await expect(locks.mutex('a').acquire({ signal: AbortSignal.abort(own) })).rejects.toBe(own);
  expect(own.stack).toBe(stack);
});
