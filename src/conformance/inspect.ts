import assert from 'node:assert/strict';
import { hostname } from 'node:os';
import { type ClaimView, ConfigError, type Holdfast, type InspectOptions, LeaseLostError } from '../index.js';
import { type Case, fifo, group, listing, shared, weighted } from './case.js';
import { ALL } from './protocol.js';
import { claimIds } from './stage.js';
import { aborted, gate, track } from './tracked.js';

/** Who holds, who waits, and the way to take a claim from somebody without breaking exclusion. */
export const inspect: readonly Case[] = group({ needs: listing }, [
  {
    name: 'the holder comes first, then the waiters in their order, with labels, host and pid',
    needs: fifo,
    async run(stage) {
      const name = stage.name();
      const locks = ['billing', 'mail', 'search'].map((label) => stage.holdfast({ label }));
      const lease = await locks[0]!.mutex(name).acquire();
      for (const [at, waiting] of locks.slice(1).entries()) {
        track(waiting.mutex(name).acquire());
        await stage.queued(locks[0]!.mutex(name), at + 1);
      }
      const line = await stage.holdfast().mutex(name).inspect();
      assert.equal(line.name, name);
      assert.equal(line.kind, 'lock');
      assert.deepEqual(line.claims.map(who), ['billing held', 'mail waiting', 'search waiting']);
      for (const { label, weight, since, session } of line.claims) {
        assert.ok(label.includes(hostname()) && label.includes(String(process.pid)), label);
        assert.equal(weight, line.capacity);
        assert.ok(Number.isFinite(since) && since > 0, `${since}`);
        assert.ok(session.length > 0);
      }
      assert.equal(line.claims[0]!.token, lease.token);
      assert.equal(new Set(line.claims.map(({ session }) => session)).size, 3);
      assert.equal(new Set(line.claims.map(({ id }) => id)).size, 3);
    },
  },
  {
    name: 'claims of one instance show the same session, and their ids begin with it',
    async run(stage) {
      const lock = stage.holdfast({ cohort: false }).mutex(stage.name());
      await lock.acquire();
      track(lock.acquire());
      await stage.queued(lock, 1);
      const { claims } = await lock.inspect();
      assert.equal(claims[0]!.session, claims[1]!.session);
      for (const { id, session } of claims) assert.ok(id.startsWith(session), `${id} of ${session}`);
    },
  },
  {
    name: 'weights and capacities of readers and writers',
    needs: shared,
    async run(stage) {
      const name = stage.name();
      const [a, b] = [stage.holdfast().rwLock(name), stage.holdfast().rwLock(name)];
      await a.read.acquire();
      track(b.write.acquire());
      await stage.queued(a.read, 1);
      const { capacity, claims } = await a.read.inspect();
      assert.equal(capacity, ALL);
      assert.deepEqual(
        claims.map(({ state, weight }) => [state, weight]),
        [
          ['held', 1],
          ['waiting', ALL],
        ],
      );
    },
  },
  {
    name: 'a semaphore and a lock of one name are two lines',
    needs: weighted,
    async run(stage) {
      const name = stage.name();
      const locks = stage.holdfast();
      await locks.mutex(name).acquire();
      await locks.semaphore(name, 5).acquire({ permits: 3 });
      const lines = await list(locks, { name });
      assert.deepEqual(lines.map(({ kind }) => kind).sort(), ['lock', 'semaphore']);
      const { kind, capacity, claims } = await locks.semaphore(name, 5).inspect();
      assert.deepEqual({ kind, capacity, weight: claims[0]?.weight }, { kind: 'semaphore', capacity: 5, weight: 3 });
    },
  },
  {
    name: 'a label given to acquire stands instead of the application’s',
    async run(stage) {
      const name = stage.name();
      const locks = stage.holdfast({ label: 'app' });
      await locks.mutex(name).acquire({ label: 'nightly export' });
      const [claim] = (await stage.holdfast().mutex(name).inspect()).claims;
      assert.equal(who(claim!), 'nightly export held');
      assert.ok(claim!.label.includes(hostname()), claim!.label);
    },
  },
  {
    name: 'an instance sees how many of its own wait behind its claim, and the token of the turn that holds it',
    async run(stage) {
      const lock = stage.holdfast().mutex(stage.name());
      const first = await lock.acquire();
      const waiters = [track(lock.acquire()), track(lock.acquire()), track(lock.acquire())];
      const before = (await lock.inspect()).claims.filter(({ state }) => state === 'held');
      assert.deepEqual(
        before.map(({ local, token }) => ({ local, token })),
        [{ local: 3, token: first.token }],
      );
      await first.release();
      const second = await waiters[0]!.promise;
      const [after] = (await lock.inspect()).claims;
      assert.equal(after?.token, second.token);
    },
  },
  {
    name: 'claims of nested runs have the same task, so that a cycle across processes can be found',
    async run(stage) {
      const locks = stage.holdfast();
      const [outer, inner, other] = [stage.name(), stage.name(), stage.name()];
      const task = async (name: string): Promise<number | undefined> =>
        (await stage.holdfast().mutex(name).inspect()).claims[0]?.task;
      await locks.mutex(outer).run(() =>
        locks.mutex(inner).run(async () => {
          assert.notEqual(await task(inner), undefined);
          assert.equal(await task(inner), await task(outer));
        }),
      );
      await locks.mutex(other).run(async () => assert.notEqual(await task(other), undefined));
    },
  },
  {
    name: 'JSON.stringify writes tokens as strings',
    async run(stage) {
      const name = stage.name();
      const locks = stage.holdfast();
      const { token } = await locks.mutex(name).acquire();
      const [line] = await list(locks, { name });
      const parsed = JSON.parse(JSON.stringify(line)) as { name: string; claims: { token: unknown }[] };
      assert.equal(parsed.name, name);
      assert.equal(parsed.claims[0]?.token, token.toString());
    },
  },
  {
    name: 'name and prefix choose lines, to the letter',
    async run(stage) {
      const locks = stage.holdfast();
      const names = [
        'job',
        'job:1',
        'job:2',
        'jobs',
        'Job:1',
        'jo',
        'a%b',
        'axb',
        'a_b',
        'a*b',
        'a[b',
        '{a',
        '日本',
        '日',
      ];
      for (const name of names) await locks.mutex(name).acquire();
      const found = async (query: InspectOptions): Promise<string[]> =>
        (await list(locks, query)).map(({ name }) => name).sort();
      assert.deepEqual(await found({}), [...names].sort());
      assert.deepEqual(await found({ name: 'job' }), ['job']);
      assert.deepEqual(await found({ name: 'nobody' }), []);
      for (const prefix of ['job', 'job:', 'j', 'J', 'a%', 'a_', 'a*', 'a[', '{', '日', 'jobs!', 'a']) {
        assert.deepEqual(await found({ prefix }), names.filter((name) => name.startsWith(prefix)).sort(), prefix);
      }
      assert.deepEqual(await found({ name: 'job:1', prefix: 'job' }), ['job:1']);
      assert.deepEqual(await found({ name: 'job:1', prefix: 'jobs' }), []);
    },
  },
  {
    name: 'lines without claims are not listed, and a lock’s own view is empty then',
    async run(stage) {
      const name = stage.name();
      const [a, b] = [stage.holdfast(), stage.holdfast()];
      const lease = await a.mutex(name).acquire();
      assert.equal((await list(b, {})).length, 1);
      await lease.release();
      assert.deepEqual(await list(b, {}), []);
      const { name: seen, kind, capacity, claims } = await b.mutex(name).inspect();
      assert.deepEqual({ seen, kind, capacity, claims }, { seen: name, kind: 'lock', capacity: ALL, claims: [] });
    },
  },
  {
    name: 'a refused try leaves no claim',
    async run(stage) {
      const name = stage.name();
      const [a, b] = [stage.holdfast(), stage.holdfast()];
      await a.mutex(name).acquire();
      assert.equal(await b.mutex(name).tryAcquire(), undefined);
      assert.equal((await a.mutex(name).inspect()).claims.length, 1);
    },
  },
  {
    name: 'looking neither takes nor disturbs',
    async run(stage) {
      const name = stage.name();
      const [a, b] = [stage.holdfast(), stage.holdfast()];
      const lease = await a.mutex(name).acquire();
      await b.mutex(name).inspect();
      for await (const line of b.inspect()) if (line.name === name) break;
      assert.equal(lease.held, true);
      assert.equal((await a.mutex(name).inspect()).claims.length, 1);
    },
  },
  {
    name: 'an evicted holder is told why, and the lock goes to the next once it has let go',
    async run(stage) {
      const name = stage.name();
      const [a, b, operator] = [stage.lively(), stage.holdfast(), stage.holdfast()];
      const lease = await a.mutex(name).acquire();
      const told = aborted(lease.signal);
      const waiting = track(b.mutex(name).acquire());
      await stage.queued(operator.mutex(name), 1);
      const [claim] = await claimIds(operator.mutex(name));
      assert.equal(await operator.evict(name, claim!, 'stuck deploy'), true);
      const next = await waiting.promise;
      assert.equal(lease.held, false, 'two believe to hold it');
      assert.ok(next.token > lease.token);
      const reason = await told;
      assert.ok(reason instanceof LeaseLostError && reason.reason === 'evicted');
      assert.ok(reason.message.includes('stuck deploy'), reason.message);
      assert.equal(lease.state, 'lost');
      assert.equal(await lease.release(), false);
      assert.equal((await a.mutex(name).tryAcquire()) ?? 'busy', 'busy');
    },
  },
  {
    name: 'an evicted holder that is still stopping what it does has its place until that is done',
    async run(stage) {
      const name = stage.name();
      const [a, b, operator] = [stage.lively(), stage.holdfast(), stage.holdfast()];
      const lease = await a.mutex(name).acquire();
      const waiting = track(b.mutex(name).acquire());
      await stage.queued(operator.mutex(name), 1);
      const [claim] = await claimIds(operator.mutex(name));
      const [stopping, stopped] = [gate(), gate()];
      lease.onEvicted(() => {
        stopping.open();
        return stopped.opened;
      });
      assert.equal(await operator.evict(name, claim!, 'stuck deploy'), true);
      await stopping.opened;
      assert.equal(lease.held, false);
      await stage.sleep(stage.shortTtlMs / 4);
      assert.equal((await claimIds(operator.mutex(name)))[0], claim);
      stopped.open();
      const next = await waiting.promise;
      assert.ok(next.token > lease.token);
    },
  },
  {
    name: 'an evicted waiter is rejected with LeaseLostError, and neither holder nor other waiters are disturbed',
    needs: fifo,
    async run(stage) {
      const name = stage.name();
      const [a, b, c, operator] = [stage.holdfast(), stage.lively(), stage.holdfast(), stage.holdfast()];
      const lease = await a.mutex(name).acquire();
      const evicted = track(b.mutex(name).acquire());
      await stage.queued(operator.mutex(name), 1);
      const waiting = track(c.mutex(name).acquire());
      await stage.queued(operator.mutex(name), 2);
      const [, claim] = await claimIds(operator.mutex(name));
      assert.equal(await operator.evict(name, claim!, 'not now'), true);
      await assert.rejects(
        evicted.promise,
        (error) => error instanceof LeaseLostError && error.reason === 'evicted' && error.message.includes('not now'),
      );
      await stage.queued(operator.mutex(name), 1);
      assert.equal(waiting.state, 'pending');
      assert.equal(lease.held, true);
      await lease.release();
      assert.equal((await waiting.promise).held, true);
    },
  },
  {
    name: 'a reason is text of at most 1 KiB, told as it is; anything else is a ConfigError, and nobody is evicted',
    async run(stage) {
      const name = stage.name();
      const [a, operator] = [stage.lively(), stage.holdfast()];
      const lease = await a.mutex(name).acquire();
      const [claim] = await claimIds(operator.mutex(name));
      const wrong = [
        5,
        null,
        {},
        { a: 1 },
        ['x'],
        true,
        1n,
        Symbol('x'),
        'x'.repeat(1_025),
        '日'.repeat(342),
        'x\uD800',
      ];
      for (const reason of wrong)
        await assert.rejects(operator.evict(name, claim!, reason as string), ConfigError, typeof reason);
      for (const id of [undefined, 5, {}, [claim], null])
        await assert.rejects(operator.evict(name, id as string, 'x'), ConfigError, typeof id);
      await assert.rejects(operator.evict(5 as never, claim!, 'x'), ConfigError);
      assert.equal(lease.held, true);
      const told = aborted(lease.signal);
      const reason = `"stuck"\n\u001b[31m {}' \\ 日本 😀 `.padEnd(1_000, 'x');
      assert.equal(await operator.evict(name, claim!, reason), true);
      const loss = await told;
      assert.ok(loss instanceof LeaseLostError && loss.reason === 'evicted');
      assert.equal(loss.detail, reason);
      assert.ok(!/\p{Cc}/u.test(loss.message), 'its message can’t be printed');
    },
  },
  {
    name: 'evict of what is not there is false and harms nobody',
    async run(stage) {
      const [name, other] = [stage.name(), stage.name()];
      const [a, operator] = [stage.holdfast(), stage.holdfast()];
      const lease = await a.mutex(name).acquire();
      const [claim] = await claimIds(operator.mutex(name));
      assert.equal(await operator.evict(name, 'nobody-1', 'typo'), false);
      assert.equal(await operator.evict(other, claim!, 'wrong lock'), false);
      assert.equal(lease.held, true);
      await lease.release();
      assert.equal(await operator.evict(name, claim!, 'too late'), false);
    },
  },
  {
    name: 'a permit can be evicted, and only that one goes',
    needs: weighted,
    async run(stage) {
      const name = stage.name();
      const [a, b, operator] = [stage.holdfast(), stage.lively(), stage.holdfast()];
      const kept = await a.semaphore(name, 2).acquire();
      const lost = await b.semaphore(name, 2).acquire();
      const { claims } = await operator.semaphore(name, 2).inspect();
      const claim = claims.find(({ token }) => token === lost.token);
      assert.equal(await operator.evict(name, claim!.id, 'stuck'), true);
      assert.ok((await aborted(lost.signal)) instanceof LeaseLostError);
      assert.equal(kept.held, true);
      assert.equal((await operator.semaphore(name, 2).acquire()).held, true);
    },
  },
]);

async function list(locks: Holdfast, query: InspectOptions) {
  const lines = [];
  for await (const line of locks.inspect(query)) lines.push(line);
  return lines;
}

/** The application's part of a label, and the state. */
function who({ label, state }: ClaimView): string {
  return `${label.slice(0, label.lastIndexOf('@'))} ${state}`;
}
