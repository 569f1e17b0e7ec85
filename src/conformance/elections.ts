import assert from 'node:assert/strict';
import {
  AcquireTimeoutError,
  ConfigError,
  DeadlockError,
  EngineError,
  type Holdfast,
  type Leader,
  type Term,
} from '../index.js';
import { type Case, every, fifo, group, listing, registers } from './case.js';
import { BUSY_MS, claimIds, type Stage } from './stage.js';
import { aborted, gate, track } from './tracked.js';

/** One leader at a time, seen by everybody, with a token that grows with every leader. */
export const elections: readonly Case[] = group({ needs: every(registers, listing) }, [
  {
    name: 'one leader at a time, the next when it resigns, with a larger token',
    async run(stage) {
      const name = stage.name();
      const [a, b] = [stage.holdfast(), stage.holdfast()];
      const first = await a.election(name).campaign();
      assert.equal(first.held, true);
      const candidate = track(b.election(name).campaign());
      await stage.queued(a.mutex(name), 1);
      assert.equal(candidate.state, 'pending');
      await first.release();
      const second = await candidate.promise;
      assert.equal(first.held, false);
      assert.ok(second.token > first.token);
    },
  },
  {
    name: 'candidates of one instance stand in line like those of others',
    needs: fifo,
    async run(stage) {
      const name = stage.name();
      const [a, b] = [stage.holdfast(), stage.holdfast()];
      const elected: string[] = [];
      const serve = async (locks: Holdfast, who: string): Promise<void> => {
        const term = await locks.election(name).campaign({ value: who });
        elected.push(who);
        await term.release();
      };
      const first = await a.election(name).campaign();
      const campaigns: Promise<void>[] = [];
      for (const [locks, who] of [
        [a, 'a1'],
        [b, 'b1'],
        [a, 'a2'],
      ] as const) {
        campaigns.push(serve(locks, who));
        await stage.queued(a.mutex(name), campaigns.length);
      }
      await first.release();
      await Promise.all(campaigns);
      assert.deepEqual(elected, ['a1', 'b1', 'a2']);
    },
  },
  {
    name: 'a campaign ends with the signal’s reason or with its timeout, and leaves the line',
    async run(stage) {
      const name = stage.name();
      const [a, b] = [stage.holdfast(), stage.holdfast()];
      const term = await a.election(name).campaign();
      const giveUp = new AbortController();
      const candidate = track(b.election(name).campaign({ signal: giveUp.signal }));
      await stage.queued(a.mutex(name), 1);
      giveUp.abort('enough');
      await assert.rejects(candidate.promise, (error) => error === 'enough');
      await assert.rejects(b.election(name).campaign({ timeout: 0 }), AcquireTimeoutError);
      await assert.rejects(b.election(name).campaign({ timeout: BUSY_MS }), AcquireTimeoutError);
      await stage.queued(a.mutex(name), 0);
      assert.equal(term.held, true);
    },
  },
  {
    name: 'a mutex of that name waits for the leader, and a candidate for the mutex',
    async run(stage) {
      const name = stage.name();
      const [a, b] = [stage.holdfast(), stage.holdfast()];
      const term = await a.election(name).campaign();
      assert.equal(await b.mutex(name).tryAcquire(), undefined);
      await term.release();
      await b.mutex(name).acquire();
      await assert.rejects(a.election(name).campaign({ timeout: 0 }), AcquireTimeoutError);
    },
  },
  {
    name: 'observe tells the leader, every change, and when there is none, until its signal aborts',
    async run(stage) {
      const name = stage.name();
      const [a, b] = [stage.holdfast({ label: 'first' }), stage.holdfast({ label: 'second' })];
      const { seen, stop } = observe(stage, name);
      await stage.eventually('there is no leader', () => seen.length === 1 && seen[0] === undefined);
      const one = await a.election(name).campaign({ value: 'http://one' });
      await stage.eventually('the first leader is seen', () => seen.length === 2);
      assertLeader(seen[1], { term: one, value: 'http://one', label: 'first' });
      await one.release();
      await stage.eventually('there is no leader again', () => seen.length === 3 && seen[2] === undefined);
      const two = await b.election(name).campaign({ value: 'http://two', label: 'acting' });
      await stage.eventually('the second leader is seen', () => seen.length === 4);
      assertLeader(seen[3], { term: two, value: 'http://two', label: 'acting' });
      await stop();
      assert.equal(seen.length, 4, 'it told only changes');
    },
  },
  {
    name: 'a leader’s value has at most 64 KiB in UTF-8, whatever is in it',
    async run(stage) {
      const election = stage.holdfast().election(stage.name());
      for (const character of ['x', '"', '\u0001', '\u0000', 'é']) {
        const value = character.repeat((64 * 1024) / Buffer.byteLength(character));
        const term = await election.campaign({ value });
        for await (const leader of election.observe()) {
          assert.ok(leader?.value === value, `${JSON.stringify(character)} comes back as it was`);
          break;
        }
        await term.release();
        await assert.rejects(election.campaign({ value: `${value}.` }), ConfigError);
      }
    },
  },
  {
    name: 'observe begins with the leader of the day, and ends with its loop',
    async run(stage) {
      const name = stage.name();
      const term = await stage.holdfast().election(name).campaign({ value: 'me' });
      for await (const leader of stage.holdfast().election(name).observe()) {
        assertLeader(leader, { term, value: 'me', label: '' });
        break;
      }
    },
  },
  {
    name: 'a holder of the mutex of that name is no leader',
    async run(stage) {
      const name = stage.name();
      await stage.holdfast().mutex(name).acquire();
      for await (const leader of stage.holdfast().election(name).observe()) {
        assert.equal(leader, undefined);
        break;
      }
    },
  },
  {
    name: 'lead resolves with its function, and then another leads',
    async run(stage) {
      const name = stage.name();
      const [a, b] = [stage.holdfast(), stage.holdfast()];
      const inside = gate();
      const done = gate();
      const first = track(
        a.election(name).lead(async (term) => {
          inside.open();
          await done.opened;
          return term.token;
        }),
      );
      await inside.opened;
      const second = track(b.election(name).lead({ value: 'b' }, ({ token }) => token));
      await stage.queued(a.mutex(name), 1);
      assert.equal(second.state, 'pending');
      done.open();
      assert.ok((await second.promise) > (await first.promise));
    },
  },
  {
    name: 'lead campaigns again after a loss, once its function has settled, with a larger token',
    async run(stage) {
      const name = stage.name();
      const [a, b] = [stage.lively(), stage.holdfast()];
      const terms: Term[] = [];
      let running = 0;
      const leading = a.election(name).lead(async (term) => {
        running += 1;
        assert.equal(running, 1, 'it runs twice at once');
        terms.push(term);
        if (terms.length < 3) {
          await aborted(term.signal);
          await stage.breath();
          running -= 1;
          // Both ways to end after a loss lead to the next campaign.
          if (terms.length === 1) throw term.signal.reason;
          return 'not this one';
        }
        return 'led to the end';
      });
      for (const term of [1, 2]) {
        await stage.eventually(`term ${term} has begun`, () => terms.length === term);
        const [claim] = await claimIds(b.mutex(name));
        // A server that answers too late on a busy machine is asked again, as any operator would.
        const evicted = (): Promise<boolean> => b.evict(name, claim!, 'resign').catch(unlessTold);
        await stage.eventually(`term ${term} is over`, async () => terms.length > term || (await evicted()));
      }
      assert.equal(await leading, 'led to the end');
      assert.ok(terms[0]!.token < terms[1]!.token && terms[1]!.token < terms[2]!.token);
    },
  },
  {
    name: 'lead ends with its function’s own error, or with the signal’s reason while it campaigns',
    async run(stage) {
      const name = stage.name();
      const [a, b] = [stage.holdfast(), stage.holdfast()];
      const thrown = new Error('no quorum');
      await assert.rejects(
        a.election(name).lead(() => Promise.reject(thrown)),
        (error) => error === thrown,
      );
      const term = await b.election(name).campaign();
      const giveUp = new AbortController();
      const leading = track(a.election(name).lead({ signal: giveUp.signal }, () => 'never'));
      await stage.queued(b.mutex(name), 1);
      giveUp.abort('enough');
      await assert.rejects(leading.promise, (error) => error === 'enough');
      assert.equal(term.held, true);
    },
  },
  {
    name: 'a campaign inside its own lead is refused: it would wait for itself',
    async run(stage) {
      const election = stage.holdfast().election(stage.name());
      await election.lead(() => assert.rejects(election.campaign(), DeadlockError));
    },
  },
]);

/** Notes all that an observer is told. How often it looks is a matter of its ttl. */
function observe(stage: Stage, name: string) {
  const seen: (Leader | undefined)[] = [];
  const over = new AbortController();
  const observing = (async () => {
    const { signal } = over;
    const election = stage.lively().election(name);
    for await (const leader of election.observe({ signal })) seen.push(leader);
  })();
  const stop = async (): Promise<void> => {
    over.abort();
    await observing;
  };
  return { seen, stop };
}

function assertLeader(leader: Leader | undefined, wanted: { term: Term; value: string; label: string }): void {
  assert.equal(leader?.value, wanted.value);
  assert.equal(leader.token, wanted.term.token);
  assert.ok(leader.label.includes(wanted.label), leader.label);
}

/** False: it may work the next time. */
function unlessTold(error: unknown): false {
  assert.ok(error instanceof EngineError && error.retryable, String(error));
  return false;
}
