/**
 * Bugs of the core and of the pure rule. The simulation must find each within a few hundred seeds: a simulation that can't
 * see a bug that we put there can't be trusted with those that we did not. Every bug that is ever found in the core gets a
 * line here.
 */
import type { Bug } from './plant.js';

export const CORE_BUGS: readonly Bug[] = [
  {
    name: 'validity is counted from the reply',
    edits: [
      {
        file: 'core/kept-session.ts',
        find: 'this.#renew(sentAt, sentAtWall);\n    if (pulse.index)',
        replace: 'this.#renew(this.clock.now(), this.clock.wall());\n    if (pulse.index)',
      },
    ],
  },
  {
    name: 'no margin for drift',
    edits: [{ file: 'core/kept-session.ts', find: 'const MARGIN = 0.1;', replace: 'const MARGIN = 0;' }],
  },
  {
    name: 'a failed beat counts as a success',
    edits: [
      {
        file: 'core/kept-session.ts',
        find: 'this.#beating = false;\n        this.#schedule(backoff(this.clock, this.#missed, this.ttlMs / 30',
        replace:
          'this.#beating = false;\n        this.#renew(sentAt, sentAtWall);\n        this.#schedule(backoff(this.clock, this.#missed, this.ttlMs / 30',
      },
    ],
  },
  {
    name: 'a dead session is revived by a late beat',
    edits: [
      {
        file: 'core/kept-session.ts',
        find: "if (!this.#loss && this.clock.now() >= this.#validUntil) this.ended({ reason: 'expired' });\n    return !this.#loss;",
        replace: 'return !this.#loss && this.clock.now() < this.#validUntil;',
      },
      {
        file: 'core/kept-session.ts',
        find: 'if (!this.alive()) return;\n    if (!pulse.alive)',
        replace: 'if (this.#loss) return;\n    if (!pulse.alive)',
      },
    ],
  },
  {
    name: "a new session takes the dead one's id",
    edits: [
      {
        file: 'core/kept-session.ts',
        find: 'this.id = clock.id();',
        replace: "this.id = clock.id().replace(/[.].*/, '');",
      },
    ],
  },
  {
    name: 'a grant that comes after validity ended is handed out',
    edits: [
      {
        file: 'core/standing.ts',
        find: 'if (!session.valid()) {',
        replace: 'if (Number.isNaN(session.ttlMs)) {',
      },
    ],
  },
  {
    name: 'a late enter reply is accepted though the claim was given up',
    edits: [
      {
        file: 'core/standing.ts',
        find: "if (this.#state === 'over' || this.#state === 'held') return;\n    const session",
        replace: "if (this.#state === 'held') return;\n    const session",
      },
      {
        file: 'core/standing.ts',
        find: "    if (this.#state === 'over') {\n      if (place.state === 'held' || place.state === 'waiting') void session.withdraw(this.#claim!);\n    } else if (this.#state === 'entering') {",
        replace: "    if (this.#state === 'entering' || this.#state === 'over') {",
      },
    ],
  },
  {
    name: 'the withdrawal is cancelled by the abort that caused it',
    edits: [
      {
        file: 'core/cohort.ts',
        find: 'if (this.#waiters.size === 0) this.#hold?.unwanted();',
        replace: 'if (this.#waiters.size === 0 && !waiter.patience.signal?.aborted) this.#hold?.unwanted();',
      },
    ],
  },
  {
    name: 'an orphan in the index is not left',
    edits: [
      {
        file: 'core/kept-session.ts',
        find: 'if (!this.#claims.has(claim.id) && !this.#leaving.has(claim.id)) void this.withdraw(claim);',
        replace: '',
      },
    ],
  },
  {
    name: 'a grant whose message was lost is not found by the beat',
    edits: [
      {
        file: 'core/kept-session.ts',
        find: "if (found?.state === 'held' && found.token !== undefined) standing.grant(found.token);\n      else if",
        replace: 'if',
      },
    ],
  },
  {
    name: 'a waiter whose session died does not stand again',
    edits: [
      {
        file: 'core/cohort.ts',
        find: 'if (this.#waiters.size > 0) this.#stand(true, askedAt);\n    else',
        replace: 'if (this.#waiters.size === 0)',
      },
    ],
  },
  {
    name: 'an index that is older than the grant costs the claim',
    edits: [
      {
        file: 'core/kept-session.ts',
        find: 'isOlder(found ? standing.heldAtBeat : standing.settledAtBeat, beat)',
        replace: 'isOlder(found && !standing.held ? standing.heldAtBeat : standing.settledAtBeat, beat)',
      },
    ],
  },
  {
    name: 'a suspended machine is not noticed',
    edits: [
      {
        file: 'core/kept-session.ts',
        find: 'const sure = this.clock.wall() < this.#validUntilWall;',
        replace: 'const sure = true;',
      },
    ],
  },
  {
    name: "a cohort turn's token is used again",
    edits: [{ file: 'core/hold.ts', find: ' + BigInt(this.#served)', replace: '' }],
  },
  {
    name: 'a downgraded lease keeps the token that it wrote with',
    edits: [
      {
        file: 'core/hold.ts',
        find: 'const reader = this.#makeTurn(1);',
        replace: 'this.#served -= 1;\n    const reader = this.#makeTurn(1);',
      },
    ],
  },
  {
    name: 'a lock is handed over locally after validity ended',
    edits: [
      {
        file: 'core/hold.ts',
        find: ' && ageMs < COHORT_MS && this.#standing!.valid();',
        replace: ' && ageMs < COHORT_MS;',
      },
    ],
  },
  {
    name: 'readers join a shared claim for ever',
    edits: [{ file: 'core/cohort.ts', find: '|| this.#hold.mayServe();', replace: '|| this.#hold.valid();' }],
  },
  {
    name: 'a cohort passes the lock on for ever',
    edits: [
      {
        file: 'core/hold.ts',
        find: 'const COHORT_TURNS = 64;\nconst COHORT_MS = 50;',
        replace: 'const COHORT_TURNS = 1e6;\nconst COHORT_MS = 1e6;',
      },
    ],
  },
  {
    name: 'the floor is skipped: siblings share',
    edits: [
      {
        file: 'core/floor.ts',
        find: "ground.line.kind === 'lock' ? ALL : outer.weight",
        replace: 'Number.MAX_SAFE_INTEGER',
      },
    ],
  },
  {
    name: 'an outer run does not wait for what is inside it',
    edits: [
      {
        file: 'core/turn.ts',
        find: 'return this.#floor ? this.#floor.close().then(() => this.#grip.giveBack(this)) : ',
        replace: 'return ',
      },
    ],
  },
  {
    name: 'a waiting claim is subtracted from what is held',
    edits: [
      {
        file: 'core/line.ts',
        find: 'if (node.held) this.#heldWeight -= node.weight;',
        replace: 'this.#heldWeight -= node.weight;',
      },
    ],
  },
  {
    name: 'a dead waiter is skipped, not removed',
    edits: [
      {
        file: 'engines/memory/space.ts',
        find: 'for (const claim of [...claims.values()]) this.#remove(claim);',
        replace: 'for (const claim of [...claims.values()]) if (claim.spot.held) this.#remove(claim);',
      },
    ],
  },
  {
    name: 'a tryAcquire does not reap',
    edits: [
      {
        file: 'engines/memory/space.ts',
        find: "this.reap(time);\n    const session = this.#sessions.get(sessionId);\n    if (!session) return { state: 'gone' };",
        replace:
          "if (claim.wait) this.reap(time);\n    const session = this.#sessions.get(sessionId);\n    if (!session) return { state: 'gone' };",
      },
    ],
  },
];
