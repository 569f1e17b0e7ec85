/** A log line must say which call it was: every rejection has the frame of the code that awaits it. */
import { describe, expect, test } from 'vitest';
import { Holdfast } from '../../src/index.js';
import { ScriptedEngine } from './scripted-engine.js';

interface Calls {
  readonly busy: Holdfast;
  readonly broken: Holdfast;
  readonly closed: Holdfast;
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
  'ready of what is broken': ({ broken }) => broken.ready(),
  'a register of what is broken': ({ broken }) => broken.register('a').get(),
  'inspect of what is broken': async ({ broken }) => {
    for await (const _ of broken.inspect()) break;
  },
  'inspect of a lock of what is broken': ({ broken }) => broken.mutex('a').inspect(),
  'evict of what is broken': ({ broken }) => broken.evict('a', 'b'),
  'acquire of what is closed': ({ closed }) => closed.mutex('a').acquire(),
  'ready of what is closed': ({ closed }) => closed.ready(),
  'inspect of what is closed': async ({ closed }) => {
    for await (const _ of closed.inspect()) break;
  },
};

describe('the stack of a rejection has the frame of its caller', () => {
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
    const thisVeryCaller = async (): Promise<unknown> => await CALLS[name]!({ busy, broken, closed });
    const error = await thisVeryCaller().then(
      () => expect.unreachable(),
      (thrown: unknown) => thrown as Error,
    );
    expect(error.stack).toContain('thisVeryCaller');
    expect(error.stack).toContain(error.message);
  });

  test('each of many that are told of one error has its own', async () => {
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
