import assert from 'node:assert/strict';
import { type Case, fifo, group, listing, shared, weighted } from './case.js';
import { answerTo } from './protocol.js';

/**
 * The engine's own contract, spoken directly: every call may be repeated, may run late, or after the core gave up on it.
 */
export const idempotence: readonly Case[] = group({ protocol: true }, [
  {
    name: 'the same enter twice gives the same answer and the same token',
    async run(stage) {
      const name = stage.name();
      const { open } = await stage.protocol();
      const a = await open(name);
      const { claim, token } = await a.hold({ name });
      assert.deepEqual(await a.session.enter(claim), { state: 'held', token });
      assert.deepEqual(await a.session.enter({ ...claim, wait: false }), { state: 'held', token });
    },
  },
  {
    name: 'two enters of one claim at once are one claim',
    async run(stage) {
      const name = stage.name();
      const { open } = await stage.protocol();
      const [a, b] = [await open(name), await open(name)];
      const claim = a.claim({ name });
      const [first, second] = await Promise.all([a.session.enter(claim), a.session.enter(claim)]);
      assert.equal(first.state, 'held');
      assert.deepEqual(first, second);
      assert.equal(await a.session.leave(claim), true);
      assert.equal(await b.couldHold({ name }), true);
    },
  },
  {
    name: 'a waiting claim that enters again stands in line once, and after its grant gets that grant’s token',
    async run(stage) {
      const name = stage.name();
      const { open } = await stage.protocol();
      const [a, b] = [await open(name), await open(name)];
      const { claim: held, token } = await a.hold({ name });
      const waiting = await b.queue({ name });
      assert.deepEqual(await b.session.enter(waiting), { state: 'waiting' });
      assert.equal(b.grantOf(waiting), undefined);
      assert.equal(await a.session.leave(held), true);
      await stage.eventually('the waiting claim is granted', () => b.grantOf(waiting));
      const granted = b.grantOf(waiting)!;
      assert.ok(granted > token, `${granted} > ${token}`);
      assert.deepEqual(await b.session.enter(waiting), { state: 'held', token: granted });
      assert.equal(await b.session.leave(waiting), true);
      assert.equal(await a.couldHold({ name }), true);
    },
  },
  {
    name: 'a leave is true once and false after that, and admits the next once',
    async run(stage) {
      const name = stage.name();
      const { open } = await stage.protocol();
      const [a, b, c] = [await open(name), await open(name), await open(name)];
      const { claim: held } = await a.hold({ name });
      const next = await b.queue({ name });
      const last = await c.queue({ name });
      assert.equal(await a.session.leave(held), true);
      assert.equal(await a.session.leave(held), false);
      await stage.eventually('one of the two is granted', () => b.grantOf(next) ?? c.grantOf(last));
      assert.equal(await a.session.leave(held), false);
      assert.ok(b.grantOf(next) === undefined || c.grantOf(last) === undefined, 'both are granted');
    },
  },
  {
    name: 'a leave of what never entered is false and harms nothing',
    async run(stage) {
      const name = stage.name();
      const { open } = await stage.protocol();
      const a = await open(name);
      const { claim } = await a.hold({ name });
      assert.equal(await a.session.leave(a.claim({ name })), false);
      assert.deepEqual(await a.beat({ held: [claim] }), { alive: true });
    },
  },
  {
    name: 'a session can’t leave another’s claim, though it knows its id',
    async run(stage) {
      const name = stage.name();
      const { open } = await stage.protocol();
      const [a, b] = [await open(name), await open(name)];
      const { claim } = await a.hold({ name });
      assert.equal(await b.session.leave(claim), false);
      assert.equal(await b.couldHold({ name }), false);
      assert.deepEqual(await a.beat({ held: [claim] }), { alive: true });
    },
  },
  {
    name: 'a waiting claim that left is never granted, and those behind it move up',
    needs: fifo,
    async run(stage) {
      const name = stage.name();
      const { open } = await stage.protocol();
      const [a, b, c] = [await open(name), await open(name), await open(name)];
      const { claim: held } = await a.hold({ name });
      const leaver = await b.queue({ name });
      const stayer = await c.queue({ name });
      assert.equal(await b.session.leave(leaver), true);
      assert.equal(await b.session.leave(leaver), false);
      // It held nothing: what it leaves is its place in line, and no room beside the holder.
      assert.deepEqual(await c.session.enter(stayer), { state: 'waiting' });
      assert.equal(c.grantOf(stayer), undefined);
      assert.equal(await a.session.leave(held), true);
      await stage.eventually('the one behind it is granted', () => c.grantOf(stayer));
      assert.equal(b.grantOf(leaver), undefined);
    },
  },
  {
    name: 'a claim that would not wait and is refused does not stand in line',
    async run(stage) {
      const name = stage.name();
      const { open } = await stage.protocol();
      const [a, b] = [await open(name), await open(name)];
      const { claim: held } = await a.hold({ name });
      const refused = b.claim({ name, wait: false });
      assert.deepEqual(await b.session.enter(refused), { state: 'refused' });
      assert.deepEqual(await b.beat(), { alive: true });
      assert.equal(await b.session.leave(refused), false);
      assert.equal(await a.session.leave(held), true);
      assert.equal(b.grantOf(refused), undefined);
      assert.equal(await a.couldHold({ name }), true);
    },
  },
  {
    name: 'a closed session has freed all that it claimed, and the next is granted',
    async run(stage) {
      const name = stage.name();
      const other = stage.nameNear(name);
      const { open } = await stage.protocol();
      const [a, b] = [await open(name), await open(name)];
      await a.hold({ name });
      await a.hold({ name: other });
      const waiting = await b.queue({ name });
      await a.session.close();
      await stage.eventually('the waiting claim is granted', () => b.grantOf(waiting));
      assert.equal(await b.couldHold({ name: other }), true);
    },
  },
  {
    name: 'a closed session is gone for every call, and closing it again harms nothing',
    async run(stage) {
      const name = stage.name();
      const { open } = await stage.protocol();
      const [a, b] = [await open(name), await open(name)];
      const { claim } = await a.hold({ name });
      await a.session.close();
      await a.session.close();
      assert.deepEqual(await a.beat({ held: [claim] }), { alive: false });
      assert.deepEqual(await a.beat(), { alive: false });
      assert.deepEqual(await a.session.enter(claim), { state: 'gone' });
      assert.deepEqual(await a.session.enter(a.claim({ name, wait: false })), { state: 'gone' });
      assert.equal(await a.session.leave(claim), false);
      assert.equal(await b.couldHold({ name }), true);
    },
  },
  {
    name: 'a session that stopped beating is gone for every call, and is not revived by one',
    async run(stage) {
      const name = stage.name();
      const [here, elsewhere] = [await stage.protocol(), await stage.protocol(`${stage.namespace}-elsewhere`)];
      // Nobody else is here who could find the first one dead and bury it. The second lives and dies among others, after it.
      const b = await elsewhere.open(name);
      const first = await here.open(name, { ttlMs: stage.shortTtlMs });
      const { claim } = await first.hold({ name });
      const second = await elsewhere.open(name, { ttlMs: stage.shortTtlMs });
      const { claim: freed, token } = await second.hold({ name });
      const heldAt = stage.now();
      await stage.eventually('what the second one held is free', () => b.couldHold({ name }));
      // A store that counts whole seconds may free it before the session's time is over.
      await stage.sleep(Math.max(0, heldAt + stage.shortTtlMs - stage.now()));
      for (const [dead, held] of [
        [first, claim],
        [second, freed],
      ] as const) {
        const another = dead.claim({ name: stage.nameNear(name) });
        assert.deepEqual(await answerTo(() => dead.beat({ held: [held] })), { alive: false });
        assert.deepEqual(await answerTo(() => dead.session.enter(held)), { state: 'gone' });
        assert.deepEqual(await answerTo(() => dead.session.enter(another)), { state: 'gone' });
        assert.deepEqual(await answerTo(() => dead.beat()), { alive: false });
      }
      assert.equal(await answerTo(() => second.session.leave(freed)), false);
      const next = await b.hold({ name });
      assert.ok(next.token > token, `${next.token} > ${token}`);
      assert.deepEqual(await b.beat({ held: [next.claim] }), { alive: true });
    },
  },
  {
    name: 'an enter reaps the dead before it refuses: who only tries is never stuck behind a crash',
    async run(stage) {
      const name = stage.name();
      const { open, hush } = await stage.protocol();
      // The one that dies is opened last: its time runs from then on.
      const [b, a] = [await open(name), await open(name, { ttlMs: stage.shortTtlMs })];
      await a.hold({ name });
      assert.equal(await b.couldHold({ name }), false);
      hush();
      await stage.eventually('a try is granted', () => b.couldHold({ name }));
    },
  },
  {
    name: 'a reweigh keeps its place and its token, admits the readers behind it, and may be repeated',
    needs: shared,
    async run(stage) {
      const name = stage.name();
      const { open } = await stage.protocol();
      const [a, b, c] = [await open(name), await open(name), await open(name)];
      const { claim: writer, token } = await a.hold({ name });
      const readers = [await b.queue({ name, weight: 1 }), await b.queue({ name, weight: 1 })];
      const lighter = { ...writer, weight: 1 };
      await a.session.reweigh(lighter);
      for (const reader of readers) await stage.eventually('the readers are granted', () => b.grantOf(reader));
      await a.session.reweigh(lighter);
      assert.deepEqual(await a.session.enter(lighter), { state: 'held', token });
      assert.equal(await c.couldHold({ name }), false);
      assert.equal(await c.couldHold({ name, weight: 1 }), true);
      assert.equal(await a.session.leave(lighter), true);
      for (const reader of readers) assert.equal(await b.session.leave(reader), true);
      assert.equal(await c.couldHold({ name }), true);
    },
  },
  {
    name: 'a reweigh keeps writers out',
    needs: shared,
    async run(stage) {
      const name = stage.name();
      const { open } = await stage.protocol();
      const [a, b] = [await open(name), await open(name)];
      const { claim: writer } = await a.hold({ name });
      const next = await b.queue({ name });
      await a.session.reweigh({ ...writer, weight: 1 });
      assert.deepEqual(await b.session.enter(next), { state: 'waiting' });
      assert.deepEqual(await b.beat({ waiting: [next] }), { alive: true });
      assert.equal(b.grantOf(next), undefined);
      assert.equal(await a.session.leave(writer), true);
      await stage.eventually('the writer is granted', () => b.grantOf(next));
    },
  },
  {
    name: 'a reweigh of what does not stand in line harms nothing',
    needs: shared,
    async run(stage) {
      const name = stage.name();
      const { open } = await stage.protocol();
      const [a, b] = [await open(name), await open(name)];
      const { claim } = await a.hold({ name });
      await b.session.reweigh({ ...b.claim({ name }), weight: 1 });
      await b.session.reweigh({ ...claim, weight: 1 });
      assert.equal(await b.couldHold({ name, weight: 1 }), false);
      assert.deepEqual(await b.beat(), { alive: true });
      assert.deepEqual(await a.beat({ held: [claim] }), { alive: true });
    },
  },
  {
    name: 'a claim of another capacity is told the line’s, and does not stand in it',
    needs: weighted,
    async run(stage) {
      const spec = { name: stage.name(), kind: 'semaphore', weight: 1 } as const;
      const { open } = await stage.protocol();
      const [a, b] = [await open(spec.name), await open(spec.name)];
      const { claim: held } = await a.hold({ ...spec, capacity: 2 });
      for (const wait of [true, false]) {
        const other = b.claim({ ...spec, capacity: 3, wait });
        assert.deepEqual(await b.session.enter(other), { state: 'mismatch', capacity: 2 });
        assert.equal(await b.session.leave(other), false);
      }
      assert.deepEqual(await b.beat(), { alive: true });
      assert.equal(await a.session.leave(held), true);
      assert.equal(await b.couldHold({ ...spec, capacity: 3 }), true);
    },
  },
  {
    name: 'an evicted claim keeps its place until its session, who is told, has left it',
    needs: listing,
    async run(stage) {
      const name = stage.name();
      const { open } = await stage.protocol();
      const [a, b] = [await open(name), await open(name)];
      const { claim } = await a.hold({ name });
      const waiting = await b.queue({ name });
      assert.equal(await stage.holdfast().evict(name, claim.id, 'stuck deploy'), true);
      await stage.eventually('the session is told, at the latest by a beat', async () => {
        await a.beat({ held: [claim] });
        return a.lossOf(claim);
      });
      assert.deepEqual(a.lossOf(claim), { reason: 'evicted', detail: 'stuck deploy' });
      assert.equal(b.grantOf(waiting), undefined);
      assert.deepEqual(await b.session.enter(waiting), { state: 'waiting' });
      assert.equal(await a.session.leave(claim), true);
      await stage.eventually('the next is granted', () => b.grantOf(waiting));
    },
  },
]);
