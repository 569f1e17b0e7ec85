/**
 * Bugs of the core and of the pure rule. The simulation must find each within a few hundred seeds: a simulation that can't
 * see a bug that we put there can't be trusted with those that we did not. Every bug that is ever found in the core gets a
 * line here.
 */
import type { Bug } from './plant.js';
import type { TestedBug } from './test-run.js';

export const CORE_BUGS: readonly Bug[] = [
  {
    name: 'validity is counted from the reply',
    edits: [
      {
        file: 'core/kept-session.ts',
        find: 'this.validity.renew(sentAt, sentAtWall, this.ttlMs);\n    if (pulse.index)',
        replace: 'this.validity.renew(this.clock.now(), this.clock.wall(), this.ttlMs);\n    if (pulse.index)',
      },
    ],
  },
  {
    name: 'no margin for drift',
    edits: [
      {
        file: 'core/validity.ts',
        find: 'const MARGIN = 0.1;',
        replace: 'const MARGIN = 0;',
      },
    ],
  },
  {
    name: 'a failed beat counts as a success',
    edits: [
      {
        file: 'core/kept-session.ts',
        find: 'this.#beating = false;\n        this.#schedule(backoff(this.clock, this.validity.missed, this.ttlMs / 30',
        replace:
          'this.#beating = false;\n        this.validity.renew(sentAt, sentAtWall, this.ttlMs);\n        this.#schedule(backoff(this.clock, this.validity.missed, this.ttlMs / 30',
      },
    ],
  },
  {
    name: 'a dead session is revived by a late beat',
    edits: [
      {
        file: 'core/kept-session.ts',
        find: "if (!this.#loss && this.validity.expired) this.ended({ reason: 'expired' });\n    return !this.#loss;",
        replace: 'return !this.#loss && !this.validity.expired;',
      },
      {
        file: 'core/kept-session.ts',
        find: 'if (!this.notice()) return;\n    if (!pulse.alive)',
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
        find: 'if (!session.sure()) {',
        replace: 'if (Number.isNaN(session.ttlMs)) {',
      },
    ],
  },
  {
    name: 'a claim that was given up stays on the roster, and its late reply is not answered',
    edits: [
      {
        file: 'core/standing.ts',
        find: "      if (place?.state === 'held' || place?.state === 'waiting') void session.withdraw(claim);\n",
        replace: '',
      },
      { file: 'core/standing.ts', find: '    this.#bound?.session.forget(this.#bound.claim.id);\n', replace: '' },
    ],
  },
  {
    name: 'the withdrawal is cancelled by the abort that caused it',
    edits: [
      {
        file: 'core/cohort.ts',
        find: '    this.#calm();\n    this.#hold?.unwanted();',
        replace: '    this.#calm();\n    if (!waiter.patience.signal?.aborted) this.#hold?.unwanted();',
      },
    ],
  },
  {
    name: 'an orphan in the index is not left',
    edits: [
      {
        file: 'core/kept-session.ts',
        find: 'if (![this.#claims, this.#leaving, this.#stopping].some((ours) => ours.has(claim.id))) void this.withdraw(claim);',
        replace: '',
      },
    ],
  },
  {
    name: 'a grant whose message was lost is not found by the beat',
    edits: [
      {
        file: 'core/kept-session.ts',
        find: "if (found?.state === 'held' && found.token !== undefined) standing.grant(this, found.token);\n      else if",
        replace: 'if',
      },
    ],
  },
  {
    name: 'a waiter whose session died does not stand again',
    edits: [
      {
        file: 'core/cohort.ts',
        find: '    this.#stand(waits, askedAt);\n',
        replace: '',
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
        file: 'core/validity.ts',
        find: 'return this.#clock.wall() >= this.#untilWall;',
        replace: 'return false;',
      },
    ],
  },
  {
    name: "a cohort turn's token is used again",
    edits: [{ file: 'core/token.ts', find: ' + BigInt(turn)', replace: '' }],
  },
  {
    name: 'a downgraded lease keeps the token that it wrote with',
    edits: [
      {
        file: 'core/hold.ts',
        find: '    const token = this.#nextToken();\n    this.#weight = 1;',
        replace: '    this.#served -= 1;\n    const token = this.#nextToken();\n    this.#weight = 1;',
      },
    ],
  },
  {
    name: 'a lock is handed over locally after validity ended',
    edits: [
      {
        file: 'core/hold.ts',
        find: ' && ageMs < COHORT_MS && this.#standing.session.sure();',
        replace: ' && ageMs < COHORT_MS;',
      },
    ],
  },
  {
    name: 'readers join a shared claim for ever',
    edits: [
      {
        file: 'core/cohort.ts',
        find: 'return hold.mayServe() ? hold : undefined;',
        replace: 'return hold.ground.validity.valid ? hold : undefined;',
      },
    ],
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
        find: "new Line(outer.line.kind === 'lock' ? ALL : outer.weight);",
        replace: 'new Line(Number.MAX_SAFE_INTEGER);',
      },
    ],
  },
  {
    name: 'an outer run does not wait for what is inside it',
    edits: [
      {
        file: 'core/turn.ts',
        find: 'this.#givenBack ??= this.floor?.busy ? this.floor.emptied().then(() => this.#giveBack()) : this.#giveBack();',
        replace: 'this.#givenBack ??= this.#giveBack();',
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
        file: 'engines/memory/protocol.ts',
        find: 'for (const claim of [...claims.values()]) this.#remove(claim);',
        replace: 'for (const claim of [...claims.values()]) if (claim.spot.held) this.#remove(claim);',
      },
    ],
  },
  {
    name: 'a tryAcquire does not reap',
    edits: [
      {
        file: 'engines/memory/protocol.ts',
        find: "this.reap(time);\n    const session = this.#sessions.get(sessionId);\n    if (!session) return { state: 'gone' };",
        replace:
          "if (claim.wait) this.reap(time);\n    const session = this.#sessions.get(sessionId);\n    if (!session) return { state: 'gone' };",
      },
    ],
  },
];

/** Bugs of the half inside one process, which the model of the public API must find. */
export const API_BUGS: readonly Bug[] = [
  {
    name: 'code inside a turn that was released is granted without the lock',
    edits: [
      {
        file: 'core/reentrancy.ts',
        find: 'if (frame.turn.open) return frame.turn;',
        replace: 'if (!frame.turn.loss) return frame.turn;',
      },
      { file: 'core/floor.ts', find: '    if (!this.#outer.held) throw this.#outer.lossError();\n', replace: '' },
    ],
  },
  {
    name: 'a writer may enter while its turn is being downgraded',
    edits: [{ file: 'core/turn.ts', find: '    writers?.refuseWriters();\n    this.#weight = 1;\n', replace: '' }],
  },
  {
    name: 'a downgrade does not tell that the turn was lost meanwhile',
    edits: [
      {
        file: 'core/turn.ts',
        find: '    if (this.#loss) throw new LeaseLostError(this.line.name, this.#loss, reader.token);\n',
        replace: '',
      },
    ],
  },
  {
    name: 'a turn that was closed is open again after its downgrade',
    edits: [
      {
        file: 'core/turn.ts',
        find: '(this.#onEnd = lost))]);\n',
        replace: "(this.#onEnd = lost))]);\n    this.#state = 'open';\n",
      },
    ],
  },
  {
    name: 'a nested lease shows what it asked for, not what its claim is',
    edits: [{ file: 'core/turn.ts', find: 'this.#hand = grip.outer?.hand ?? {', replace: 'this.#hand = {' }],
  },
  {
    name: 'an outer release waits for those inside',
    edits: [
      {
        file: 'core/turn.ts',
        find: "return this.#state === 'closing' ? RELEASED : givenBack;",
        replace: 'return givenBack;',
      },
    ],
  },
  {
    name: 'maxHold is a timer only',
    edits: [
      {
        file: 'core/turn.ts',
        find: "this.#state !== 'over' && !this.#hasReachedEnd() && this.validity.valid;",
        replace: "this.#state !== 'over' && this.validity.valid;",
      },
    ],
  },
  {
    name: 'maxHold ends with the release, though others are still inside',
    edits: [
      {
        file: 'core/turn.ts',
        find: "    if (this.#state === 'open') this.#released = true;\n",
        replace: "    if (this.#state === 'open') this.#released = true;\n    this.#endTimer?.close();\n",
      },
    ],
  },
  {
    name: 'to look at a lease ends it',
    edits: [
      {
        file: 'core/turn.ts',
        find: '  get held(): boolean {\n',
        replace: '  get held(): boolean {\n    this.notice();\n',
      },
    ],
  },
  {
    name: 'within takes leases of another instance',
    edits: [
      {
        file: 'locks/lock.ts',
        find: 'if (!lease.belongsTo(this.#instance)) {',
        replace: "if (!lease.belongsTo(this.#instance) && this.name === '') {",
      },
    ],
  },
  {
    name: 'a function begins though its lease is lost',
    edits: [
      { file: 'locks/run.ts', find: 'if (!turn.open || !instance.open) throw', replace: 'if (!instance.open) throw' },
      // Whoever takes it looks as well.
      {
        file: 'locks/lock.ts',
        find: '      turn?.notice();\n      if (turn && !turn.open) throw turn.undeliveredError();\n',
        replace: '',
      },
    ],
  },
  {
    name: 'all() waits outside of what it has',
    edits: [
      {
        file: 'locks/all.ts',
        find: 'await (inside ? inside.run(() => take(member, purpose)) : take(member, purpose));',
        replace: 'await take(member, purpose);',
      },
    ],
  },
  {
    name: 'a wait that ends by itself counts as endless',
    edits: [{ file: 'core/deadlock.ts', find: 'if (!waiter.endsByItself) waiter.wait', replace: 'waiter.wait' }],
  },
  {
    name: 'a timeout waits for the look at who holds the lock',
    edits: [
      {
        file: 'core/explanation.ts',
        find: 'export const EXPLAIN_WITHIN_MS = 80;',
        replace: 'export const EXPLAIN_WITHIN_MS = 1e6;',
      },
    ],
  },
  {
    name: 'close gives away what functions work in',
    edits: [
      {
        file: 'core/closing.ts',
        find: 'if (this.#working.size === 0) return this.#end();',
        replace: 'return this.#end();',
      },
    ],
  },
  {
    name: 'what close releases is passed on to a waiter',
    edits: [
      {
        file: 'core/hold.ts',
        find: '    this.#cohort?.reject(error, ({ frame }) => !isWorkOf(owner, frame));\n    for (const turn',
        replace: '    for (const turn',
      },
      {
        file: 'core/instance.ts',
        find: 'if (this.#working.size > 0) for (const realm',
        replace: 'for (const realm',
      },
    ],
  },
  {
    name: 'who calls while the instance closes waits for ever',
    edits: [
      {
        file: 'core/instance.ts',
        find: '    if (!this.open) throw new ClosedError();\n',
        replace: '',
      },
      {
        file: 'core/realm.ts',
        find: '      standing.fail(new ClosedError());\n    } else if (session) {',
        replace: '    } else if (session) {',
      },
    ],
  },
  {
    name: 'a reader is served by a claim that was lost',
    edits: [{ file: 'core/hold.ts', find: ' || !this.#standing.held) return false;', replace: ') return false;' }],
  },
  {
    name: 'every timeout looks for itself who holds the lock',
    edits: [
      { file: 'core/explanation.ts', find: '    if (this.#looking || this.#freshFor(waiter)) return;\n', replace: '' },
      { file: 'core/looks.ts', find: 'let look = this.#looks.get(key);\n', replace: 'let look;\n' },
    ],
  },
  {
    name: 'an answer to another claim is no answer of the engine',
    edits: [
      {
        file: 'core/cohort.ts',
        find: 'if (this.line.realm.answers > answersBefore) return true;',
        replace: 'if (hold?.answered && this.line.realm.answers > answersBefore) return true;',
      },
    ],
  },
  {
    name: 'a reader counts as waiting before the engine has said that it waits',
    edits: [
      {
        file: 'core/local-line.ts',
        find: 'if (!waiter.triesOnce && waiter.weight === ALL) beginWait',
        replace: 'if (!waiter.triesOnce) beginWait',
      },
      {
        file: 'core/local-line.ts',
        find: '    let needed = waiter.weight;\n    if (needed',
        replace: '    let needed = ALL;\n    if (needed',
      },
    ],
  },
  {
    name: 'a reader queues behind a cohort whose time is over',
    edits: [
      {
        file: 'core/cohort.ts',
        find: 'return hold.mayServe() ? hold : undefined;',
        replace: "return hold.mayServe() ? hold : 'behind';",
      },
    ],
  },
  {
    name: "a session lives in the first user's async context",
    edits: [
      {
        file: 'core/outside.ts',
        find: '= AsyncLocalStorage.snapshot();',
        replace: '= (run) => (AsyncLocalStorage, run());',
      },
    ],
  },
  {
    name: 'who waits inside a lock is not counted',
    edits: [{ file: 'core/floor.ts', find: '    outside.addPending(1);\n', replace: '' }],
  },
  {
    name: 'who only tries needs room among the waiters',
    edits: [
      {
        file: 'core/instance.ts',
        find: 'if (!waiter.triesOnce) this.#assertRoom();',
        replace: 'this.#assertRoom();',
      },
    ],
  },
  {
    name: 'the pause before the next session outlives close',
    edits: [{ file: 'core/realm.ts', find: '    this.#pause?.close();\n', replace: '' }],
  },
  {
    name: 'what is tried again keeps the process alive',
    edits: [
      {
        file: 'core/kept-session.ts',
        find: '    // Whoever waits for what is tried again keeps the process alive by waiting.\n    timer.unref();\n',
        replace: '    timer.ref();\n',
      },
    ],
  },
  {
    name: "a user's frozen error becomes a TypeError",
    edits: [
      { file: 'locks/run.ts', find: '  } catch {\n    // It is frozen', replace: '  } finally {\n    // It is frozen' },
    ],
  },
  {
    name: "a leader's own error is swallowed after a loss",
    edits: [
      {
        file: 'locks/election.ts',
        find: "if (!(error instanceof Error) || error.name !== 'AbortError') return false;",
        replace: 'if (error instanceof Error) return true;\n  return false;',
      },
    ],
  },
  {
    name: 'a view of a claim has no JSON',
    edits: [
      {
        file: 'core/view.ts',
        find: "return hidden(view, 'toJSON', () => ({ ...view, token: view.token?.toString() }));",
        replace: 'return view;',
      },
    ],
  },
  {
    name: 'once remembers what nobody asked it to',
    edits: [
      { file: 'locks/once.ts', find: '  if (atLeastMs === 0) return NO_NOTE;\n', replace: '' },
      {
        file: 'locks/once.ts',
        find: 'of.write(register, value, as, Math.ceil(forMs) + MARGIN_MS)',
        replace: 'of.write(register, value, as)',
      },
    ],
  },
  {
    name: 'a function begins though its instance is closing',
    edits: [{ file: 'locks/run.ts', find: '!turn.open || !instance.open', replace: '!turn.open' }],
  },
  {
    name: 'who waits inside a lease is let in after its release',
    edits: [{ file: 'core/turn.ts', find: '    this.floor?.expel();\n', replace: '' }],
  },
  {
    name: 'a turn is blocked by its own run only, not by those inside it',
    edits: [
      {
        file: 'core/turn.ts',
        find: 'for (const turn of this.#family()) if (!turn.over && !turn.released) yield turn;',
        replace:
          'if (this.open) yield this;\n    else for (const turn of this.#family().slice(1)) yield* turn.blockers();',
      },
    ],
  },
];

const ODD_ENGINES = 'test/unit/core/odd-engines.test.ts';
const CHAINS = 'test/unit/core/deep-chains.test.ts';
const DEADLOCKS = 'test/unit/core/deadlocks.test.ts';
const CLOSING = 'test/unit/core/inside-and-closing.test.ts';
const ONCE = 'test/unit/locks/once.test.ts';
const UNREACHABLE = 'test/unit/core/keeper/unreachable-engine.test.ts';
const END_OF_A_HOLD = 'test/unit/core/keeper/end-of-a-hold.test.ts';
const STACKS = 'test/unit/stacks.test.ts';
const ALL_LOCKS = 'test/unit/locks/all.test.ts';

/** Bugs of the same half that no program of the model shows: each has its test. */
export const TESTED_BUGS: readonly TestedBug[] = [
  {
    name: 'a run is noted before anybody waits for it',
    edits: [
      {
        file: 'locks/once.ts',
        find: '    await note.takeBack().catch(() => {});\n    throw error;\n  }\n}',
        replace: '    throw error;\n  }\n}',
      },
    ],
    foundBy: { file: ODD_ENGINES, test: 'because the answer to the note got lost' },
  },
  {
    name: 'a run that ended before it began stays noted',
    edits: [{ file: 'locks/once.ts', find: '    lease.assertHeld();\n', replace: '' }],
    foundBy: { file: ODD_ENGINES, test: 'because atMost was over before it was noted' },
    sample: true,
  },
  {
    name: 'code comes inside a lock though the machine may have been suspended',
    edits: [
      { file: 'core/floor.ts', find: 'if (!this.#outer.held) throw', replace: 'if (!this.#outer.open) throw' },
      { file: 'core/floor.ts', find: 'if (this.outer.valid) {', replace: 'if (true) {' },
    ],
    foundBy: { file: ODD_ENGINES, test: 'nobody comes inside a lock' },
  },
  {
    name: 'a sibling is let in though the machine may have been suspended',
    edits: [{ file: 'core/floor.ts', find: 'if (this.outer.valid) {', replace: 'if (true) {' }],
    foundBy: { file: ODD_ENGINES, test: 'nobody comes inside a lock' },
  },
  {
    name: 'what an earlier waiter was answered counts for a later one',
    edits: [{ file: 'core/explanation.ts', find: 'if (unheard && !(seen', replace: 'if (unheard && false && !(seen' }],
    foundBy: { file: ODD_ENGINES, test: 'came after the last sign of the engine' },
  },
  {
    name: 'maxHold counts while all() gathers',
    edits: [
      {
        file: 'locks/all.ts',
        find: '        frames.push(member.frameFor(lease, task, inside));\n',
        replace:
          '        frames.push(member.frameFor(lease, task, inside));\n        if (maxHoldMs !== undefined) lease.turn.endAfter(maxHoldMs);\n',
      },
    ],
    foundBy: { file: ODD_ENGINES, test: 'maxHold counts from when all of them are held' },
    sample: true,
  },
  {
    name: 'all() waits on though one of its locks is lost',
    edits: [
      { file: 'locks/all.ts', find: '() => waiting?.reject(lease.turn.undeliveredError())', replace: 'undefined' },
    ],
    foundBy: { file: ODD_ENGINES, test: 'one that is lost while the next is waited for ends the wait' },
    sample: true,
  },
  {
    name: 'a leader that has resigned campaigns again',
    edits: [{ file: 'locks/election.ts', find: '  if (term.turn.loss === undefined) return false;\n', replace: '' }],
    foundBy: { file: ODD_ENGINES, test: 'that has resigned leads no more' },
  },
  {
    name: 'only the turn that stands in the line is told as lost',
    edits: [
      {
        file: 'core/turn.ts',
        find: 'const outermost = family.find(({ open }) => open);',
        replace: 'const outermost = family.find((turn) => turn.open && turn === this);',
      },
    ],
    foundBy: { file: ODD_ENGINES, test: 'is told as lost, once' },
  },
  {
    name: 'a loss waits for the downgrade',
    edits: [{ file: 'core/turn.ts', find: '    this.#onEnd?.();\n', replace: '' }],
    foundBy: { file: ODD_ENGINES, test: 'a loss while a downgrade waits for the engine rejects it at once' },
  },
  {
    name: 'a waiting claim that is refused is asked for again at once',
    edits: [{ file: 'core/standing.ts', find: '        if (this.request.wait) break;\n', replace: '' }],
    foundBy: { file: ODD_ENGINES, test: 'answers an enter with refused' },
  },
  {
    name: 'a closed instance opens a session when it has connected at last',
    edits: [{ file: 'core/realm.ts', find: '      if (this.#closed) throw new ClosedError();\n', replace: '' }],
    foundBy: { file: ODD_ENGINES, test: 'no session is opened on behalf of an instance' },
  },
  {
    name: 'an evicted claim leaves though what was done under it has not stopped',
    edits: [
      {
        file: 'core/kept-session.ts',
        find: 'if (stopped) this.#withdrawAfter(stopped, claim);',
        replace: 'if (stopped) void this.withdraw(claim);',
      },
    ],
    foundBy: {
      file: 'test/unit/core/keeper/reconciliation.test.ts',
      test: 'stands until what was done under it has stopped',
    },
  },
  {
    name: 'runs that have ended are dragged along by those that they started',
    edits: [
      {
        file: 'core/reentrancy.ts',
        find: '    while (this.#parent?.over) this.#parent = this.#parent.around;\n',
        replace: '',
      },
      {
        file: 'core/reentrancy.ts',
        find: '  return stillThere(storage.getStore());',
        replace: '  return storage.getStore();',
      },
    ],
    foundBy: { file: CHAINS, test: 'is inside of one run only, however often it has run' },
  },
  {
    name: 'a chain of waits is followed by recursion',
    edits: [
      {
        file: 'core/deadlock.ts',
        find: 'asking: ReadonlySet<Frame>): string[] | undefined {\n  const seen = new Set<Frame>();\n',
        replace: 'asking: ReadonlySet<Frame>, seen = new Set<Frame>(), from?: Reached): string[] | undefined {\n',
      },
      {
        file: 'core/deadlock.ts',
        find: 'reached.push({ want: wait, from: at });',
        replace: '{\n const found = findCycle(wait, asking, seen, at);\n if (found) return found;\n }',
      },
      {
        file: 'core/deadlock.ts',
        find: '[{ want, from: undefined }]',
        replace: '[{ want, from }]',
      },
    ],
    foundBy: { file: CHAINS, test: 'may be as long as waiters are allowed, and nobody in it is refused' },
  },
  {
    name: 'a claim that is lost before its enter has returned is taken for the one that was made instead',
    edits: [
      {
        file: 'core/cohort.ts',
        find: '    this.#hold = new Hold(this, wait);\n    this.#hold.stand();',
        replace: '    const hold = new Hold(this, wait);\n    hold.stand();\n    this.#hold = hold;',
      },
    ],
    foundBy: { file: CLOSING, test: 'the other is left when nobody waits for it any more' },
  },
  {
    name: 'who waits behind one that wants more counts as waiting for less',
    edits: [{ file: 'core/local-line.ts', find: 'Math.max(needed, hold.endlesslyWanted)', replace: 'needed' }],
    foundBy: { file: DEADLOCKS, test: 'through a waiter that wants all permits and stands between is refused' },
  },
  {
    name: 'one that gives up by itself stands between for ever',
    edits: [{ file: 'core/cohort.ts', find: 'return this.#endless > 0;', replace: 'return this.#waiters.size > 0;' }],
    foundBy: { file: DEADLOCKS, test: 'is none behind a waiter for all permits that gives up by itself' },
  },
  {
    name: 'one that stands behind counts as standing between',
    edits: [{ file: 'core/local-line.ts', find: '      if (hold.standsFor(waiter)) break;\n', replace: '' }],
    foundBy: { file: DEADLOCKS, test: 'is none where the one who wants all permits stands behind' },
  },
  {
    name: 'inside a lease, one that gives up by itself stands between for ever',
    edits: [{ file: 'core/floor.ts', find: '!held && !item.waiter.endsByItself)', replace: '!held)' }],
    foundBy: { file: DEADLOCKS, test: 'is none for a reader inside a lease' },
  },
  {
    name: 'a downgrade that waits for those inside is no wait',
    edits: [
      {
        file: 'core/turn.ts',
        find: 'writers?.busy ? beginEmptying(writers, currentFrame()) : undefined',
        replace: 'writers?.busy ? beginEmptying(writers, undefined) : undefined',
      },
    ],
    foundBy: { file: DEADLOCKS, test: 'through a downgrade that waits for those inside is refused' },
  },
  {
    name: 'who waits behind a downgrade is not seen by those before it',
    edits: [{ file: 'core/floor.ts', find: ' || (this.#next?.waitedFor ?? false)', replace: '' }],
    foundBy: { file: DEADLOCKS, test: 'through one who waits behind a downgrade is refused' },
  },
  {
    name: 'a downgrade is refused when the writer is none any more',
    edits: [
      {
        file: 'core/turn.ts',
        find: '    const emptying = writers?.busy ? beginEmptying(writers, currentFrame()) : undefined;\n    writers?.refuseWriters();\n    this.#weight = 1;\n',
        replace:
          '    writers?.refuseWriters();\n    this.#weight = 1;\n    this.#state = "closing";\n    const emptying = writers?.busy ? beginEmptying(writers, currentFrame()) : undefined;\n    this.#state = "open";\n',
      },
    ],
    foundBy: { file: DEADLOCKS, test: 'that a downgrade would close is refused to it, and the writer stays one' },
  },
  {
    name: 'the end of a run that waits for those inside is no wait',
    edits: [{ file: 'locks/run.ts', find: 'turn.closeFor(caller)', replace: 'turn.close()' }],
    foundBy: { file: DEADLOCKS, test: 'through the end of a run that waits for those inside is refused' },
  },
  {
    name: 'the end of a run waits for those who wait for it',
    edits: [
      {
        file: 'core/turn.ts',
        find: '    } catch {\n      return RELEASED;',
        replace: '    } catch {\n      return givenBack;',
      },
    ],
    foundBy: { file: DEADLOCKS, test: 'that the end of a run would close leaves those inside to themselves' },
  },
  {
    name: 'an engine that never answers to connect is never asked again',
    edits: [
      {
        file: 'core/connecting.ts',
        find: '() => this.#forgo(connecting));',
        replace: '() => void this.#forgo.length);',
      },
    ],
    foundBy: { file: CLOSING, test: 'is asked again, and the one that comes too late is given back' },
  },
  {
    name: 'an engine that answers to connect too late is kept',
    edits: [
      {
        file: 'core/connecting.ts',
        find: 'connecting.then((engine) => engine[Symbol.asyncDispose]())',
        replace: 'connecting',
      },
    ],
    foundBy: { file: CLOSING, test: 'is asked again, and the one that comes too late is given back' },
  },
  {
    name: 'close() inside a lease that was handed over waits for the run around it',
    edits: [
      {
        file: 'core/closing.ts',
        find: 'for (let turn: Turn | undefined = frame.turn; turn; turn = turn.outer) if (turn.frame) yield turn.frame;',
        replace: 'yield frame;',
      },
    ],
    foundBy: { file: CLOSING, test: 'does not wait for that run, also where only `within` says' },
  },
  {
    name: 'what an engine throws is passed on as it is',
    edits: [
      {
        file: 'core/instance.ts',
        find: '    try {\n      return await this.#deadlines.race(ask(), () =>',
        replace: '    const asked = ask();\n    try {\n      return await this.#deadlines.race(asked, () =>',
      },
    ],
    foundBy: { file: CLOSING, test: 'that registers, evictions or listings throw instead of rejecting is one of ours' },
  },
  {
    name: 'a leader campaigns again though its instance closes',
    edits: [
      {
        file: 'locks/election.ts',
        find: '        if (this.#instance.closing) throw fromHere(new ClosedError(), caller);\n',
        replace: '',
      },
    ],
    foundBy: { file: CLOSING, test: 'lets no leader campaign again' },
  },
  {
    name: 'a realm that is first used while an instance drains is not closed',
    edits: [
      {
        file: 'core/instance.ts',
        find: 'await closing.drained;',
        replace: 'const realms = new Map(this.#realms);\n    await closing.drained;',
      },
      {
        file: 'core/instance.ts',
        find: 'Array.from(this.#realms.values(), (realm) => realm.close())',
        replace: 'Array.from(realms.values(), (realm) => realm.close())',
      },
    ],
    foundBy: { file: CLOSING, test: 'closes also the realms that were first used while it drained' },
  },
  {
    name: 'who waits inside a lease hears of a loss when its instance closes',
    edits: [{ file: 'core/floor.ts', find: "loss.reason === 'released' ? new ClosedError() : new", replace: 'new' }],
    foundBy: { file: CLOSING, test: 'tells who waits inside a lease that it is closed' },
  },
  {
    name: 'those who are sent to the real lock go there in the wrong order',
    edits: [
      {
        file: 'core/floor.ts',
        find: 'for (const place of waiting) place.goOn();',
        replace: 'for (const place of waiting.toReversed()) place.goOn();',
      },
    ],
    foundBy: { file: CLOSING, test: 'take the real lock in their order' },
  },
  {
    name: 'a signal that aborts while an acquire looks around is not heard',
    edits: [
      {
        file: 'core/waiter.ts',
        find: 'if (signal.aborted) this.reject(signal.reason);\n    else quit',
        replace: 'quit',
      },
    ],
    foundBy: { file: CLOSING, test: 'that aborts because of what acquire() notices is heard' },
  },
  {
    name: 'an early trouble outweighs the answers that came after it',
    edits: [
      {
        file: 'core/cohort.ts',
        find: '    this.#answersBeforeTrouble = this.line.realm.answers;\n',
        replace: '    this.#answersBeforeTrouble = Number.NaN;\n',
      },
      {
        file: 'core/cohort.ts',
        find: 'this.line.realm.answers === this.#answersBeforeTrouble',
        replace: 'Number.isNaN(this.#answersBeforeTrouble)',
      },
    ],
    foundBy: { file: CLOSING, test: 'says that the lock was busy, if the engine has answered after an early trouble' },
  },
  {
    name: 'atLeast counts from the note that was written before the run began',
    edits: [{ file: 'locks/once.ts', find: 'allSettled([working, note.runs()])', replace: 'allSettled([working])' }],
    foundBy: { file: ONCE, test: 'two runs never begin less than atLeast apart' },
  },
  {
    name: 'who does not await a promise is not in its stack',
    edits: [{ file: 'locks/lock.ts', find: 'mayFail ? new Caller() : undefined', replace: 'undefined' }],
    foundBy: { file: STACKS, test: 'acquire that times out' },
  },
  {
    name: 'an engine that keeps silent hides why it could not be reached',
    edits: [{ file: 'core/realm.ts', find: 'standing.failing(this.#trouble!)', replace: 'standing.failing(error)' }],
    foundBy: { file: UNREACHABLE, test: 'says why, also to those who come when it only keeps silent' },
  },
  {
    name: 'one try of several locks has a time of its own for each',
    edits: [
      {
        file: 'locks/all.ts',
        find: 'member.take(asked, false, { ...purpose, tryEndsAt: endsAt })',
        replace: 'member.take(asked, false, purpose)',
      },
    ],
    foundBy: { file: ALL_LOCKS, test: 'one try of several locks takes no longer than of one: tryAcquire' },
  },
  {
    name: 'an engine that has not answered yet counts as silent, however soon',
    edits: [{ file: 'core/cohort.ts', find: 'this.#askedAt < this.#answerMs * USUAL', replace: 'this.#askedAt < 0' }],
    foundBy: { file: UNREACHABLE, test: 'is no engine that can’t be reached, however short a timeout is' },
  },
  {
    name: 'an engine that was quick before never counts as silent',
    edits: [
      {
        file: 'core/cohort.ts',
        find: 'this.#askedAt < this.#answerMs * USUAL',
        replace: 'this.#askedAt < Number.POSITIVE_INFINITY',
      },
    ],
    foundBy: { file: UNREACHABLE, test: 'any more, when a lock is passed on' },
  },
  {
    name: 'close waits for what it leaves again and again',
    edits: [
      { file: 'core/kept-session.ts', find: '    if (this.#closing) return Promise.resolve(true);\n', replace: '' },
    ],
    foundBy: { file: END_OF_A_HOLD, test: 'does not wait for what it would have to leave again and again' },
  },
];
