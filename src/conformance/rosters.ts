import assert from 'node:assert/strict';
import type { Claim, Pulse, Roster } from '../index.js';
import { type Case, group } from './case.js';
import { roster } from './protocol.js';
import type { Stage } from './stage.js';

/** A beat carries a roster of what the core believes to have. Whatever went astray, the engine's answer shows it. */
export const rosters: readonly Case[] = group({ protocol: true }, [
  {
    name: 'an enter that runs after its leave shows up in the index of the next beat, and can be left then',
    async run(stage) {
      const name = stage.name();
      const { open } = await stage.protocol();
      const a = await open(name);
      const orphan = a.claim({ name });
      assert.equal(await a.session.leave(orphan), false);
      const place = await a.session.enter(orphan);
      assert.ok(place.state === 'held');
      assertIndex(await a.beat(), [{ claim: orphan, state: 'held', token: place.token }]);
      assert.equal(await a.session.leave(orphan), true);
      assert.deepEqual(await a.beat(), { alive: true });
    },
  },
  {
    name: 'a roster that matches is answered without an index',
    async run(stage) {
      const name = stage.name();
      const other = stage.nameNear(name);
      const { open } = await stage.protocol();
      const [a, b] = [await open(name), await open(name)];
      assert.deepEqual(await a.beat(), { alive: true });
      const { claim: held } = await a.hold({ name });
      assert.deepEqual(await a.beat({ held: [held] }), { alive: true });
      const waiting = await b.queue({ name });
      assert.deepEqual(await b.beat({ waiting: [waiting] }), { alive: true });
      const { claim: second } = await b.hold({ name: other });
      assert.deepEqual(await b.beat({ held: [second], waiting: [waiting] }), { alive: true });
      assert.deepEqual(await a.beat({ held: [held] }), { alive: true });
    },
  },
  {
    name: 'a roster with another count is answered with the index',
    run: (stage) => mismatch(stage, (right) => ({ ...right, count: right.count + 1 })),
  },
  {
    name: 'a roster with another checksum is answered with the index',
    run: (stage) => mismatch(stage, (right) => ({ ...right, checksum: right.checksum + 1 })),
  },
  {
    name: 'a roster with another number of holders is answered with the index: a grant’s message got lost',
    run: (stage) => mismatch(stage, (right) => ({ ...right, held: right.held - 1 })),
  },
  {
    name: 'a roster with a claim that the engine does not have is answered with the index, without that claim',
    async run(stage) {
      const name = stage.name();
      const { open } = await stage.protocol();
      const a = await open(name);
      const { claim, token } = await a.hold({ name });
      const unknown = a.claim({ name: stage.nameNear(name) });
      assertIndex(await a.beat({ held: [claim, unknown] }), [{ claim, state: 'held', token }]);
    },
  },
  {
    name: 'claims with a call in flight are not counted, whether they stand or not',
    async run(stage) {
      const name = stage.name();
      const { open } = await stage.protocol();
      const a = await open(name);
      const { claim: settled } = await a.hold({ name });
      const { claim: standing } = await a.hold({ name: stage.nameNear(name) });
      const absent = a.claim({ name: stage.nameNear(name) });
      const having = { held: [settled], unsettled: [standing, absent] };
      assert.deepEqual(await a.beat(having), { alive: true });
    },
  },
]);

/** One claim that holds and one that waits, and a beat whose roster differs in one number. */
async function mismatch(stage: Stage, wrong: (right: Roster) => Roster): Promise<void> {
  const name = stage.name();
  const other = stage.nameNear(name);
  const { open } = await stage.protocol();
  const [a, b] = [await open(name), await open(name)];
  await b.hold({ name: other });
  const { claim: held, token } = await a.hold({ name });
  const waiting = await a.queue({ name: other });
  const right = roster({ held: [held], waiting: [waiting] });
  assertIndex(await a.beatWith(wrong(right)), [
    { claim: held, state: 'held', token },
    { claim: waiting, state: 'waiting' },
  ]);
  assert.deepEqual(await a.beatWith(right), { alive: true });
}

interface Indexed {
  readonly claim: Claim;
  readonly state: 'held' | 'waiting';
  /** Engines that mint a token with the grant have none for a claim that waits. */
  readonly token?: bigint;
}

function assertIndex(pulse: Pulse, expected: readonly Indexed[]): void {
  assert.ok(pulse.alive && pulse.index, 'the beat is answered with the index');
  const seen = pulse.index.map(({ id, line, state, token }) => ({
    id,
    line: { kind: line.kind, name: line.name },
    state,
    ...(state === 'held' && { token }),
  }));
  const wanted = expected.map(({ claim, ...rest }) => ({ id: claim.id, line: claim.line, ...rest }));
  assert.deepEqual(seen.sort(byId), wanted.sort(byId));
}

function byId(a: { id: string }, b: { id: string }): number {
  return a.id < b.id ? -1 : 1;
}
