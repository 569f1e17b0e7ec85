import type { TestedBug } from '../test-run.js';

const USUAL = 'engines/redis/queue/script/usual.ts';
const LINE = 'engines/redis/queue/script/line.ts';
const RARE = 'engines/redis/queue/script/rare.ts';
const ADMISSION = 'engines/redis/queue/script/admission.ts';
const RARE_STEPS = 'engines/redis/queue/script/rare-steps.ts';
const STEPS = 'test/engines/redis/steps.test.ts';
const GARBAGE = 'test/engines/redis/garbage.test.ts';
const EPOCHS = 'test/engines/redis/epochs.test.ts';

export const redisQueue: readonly TestedBug[] = [
  {
    name: 'a leave is repeated on another connection, and finds nothing',
    edits: [
      {
        file: 'engines/redis/queue/batch.ts',
        find: "new Set(['enter', 'reap'])",
        replace: "new Set(['enter', 'leave', 'reap'])",
      },
    ],
    foundBy: {
      file: 'test/engines/redis/ended.test.ts',
      test: 'what is asked is asked once more: after the server has done it',
    },
  },
  {
    name: 'the subscriber tells its name on every connection',
    edits: [{ file: 'engines/redis/client/ioredis-connection.ts', find: '  disableClientInfo: true,\n', replace: '' }],
    foundBy: { file: 'test/engines/redis/clients-silence.test.ts', test: 'a balancer without a backend' },
  },
  {
    name: 'a free lock is given to a session that is dead',
    edits: [{ file: USUAL, find: 'if dies <= nowMs or (leastGuard', replace: 'if (leastGuard' }],
    foundBy: { file: STEPS, test: 'does not get a free lock' },
    sample: true,
  },
  {
    name: 'a dead session gets into a line',
    edits: [{ file: LINE, find: 'if not person or person.dies <= now() then', replace: 'if not person then' }],
    foundBy: { file: STEPS, test: 'does not get into a line' },
  },
  {
    name: 'a beat revives a dead session that nobody has buried',
    edits: [{ file: RARE_STEPS, find: 'R.alive(personOf(session))\n', replace: 'personOf(session)\n' }],
    foundBy: { file: STEPS, test: 'is not revived by its beat' },
  },
  {
    name: 'one dead session is not enough to look for dead holders',
    edits: [
      {
        file: ADMISSION,
        find: "redis.call('ZCOUNT', sessions, '-inf', now()) > 0",
        replace: "redis.call('ZCOUNT', sessions, '-inf', now()) > 1",
      },
    ],
    foundBy: { file: STEPS, test: 'keeps nobody out who only tries' },
  },
  {
    name: 'a dead waiter is granted',
    edits: [{ file: ADMISSION, find: 'if not R.alive(person) then', replace: 'if not person then' }],
    foundBy: { file: STEPS, test: 'is not served: who waits behind it is' },
  },
  {
    name: 'a clock that was set back keeps the dead alive',
    edits: [{ file: ADMISSION, find: 'if person then R.dieAt(person, latest) end', replace: '' }],
    foundBy: { file: STEPS, test: 'lives for no longer than its ttl because the clock was set back' },
  },
  {
    name: 'a session is buried before all of its claims',
    edits: [{ file: ADMISSION, find: '        S.more = true\n        break\n', replace: '        S.more = true\n' }],
    foundBy: { file: STEPS, test: 'is buried with all that it had' },
  },
  {
    name: 'a session that closes asks once, however much there is to bury',
    edits: [
      {
        file: 'engines/redis/queue/session.ts',
        find: "while (Number(await this.#step('reap', this.#id, 1)) === 1);",
        replace: "await this.#step('reap', this.#id, 1);",
      },
    ],
    foundBy: { file: STEPS, test: 'a session that closes leaves nothing' },
  },
  {
    name: 'the token of a free lock is the clock’s alone',
    edits: [{ file: USUAL, find: '      last = math.max(last + 1, nowUs)', replace: '      last = nowUs' }],
    foundBy: { file: STEPS, test: 'when a free lock is taken' },
  },
  {
    name: 'the token of a claim that waits is the clock’s alone',
    edits: [{ file: LINE, find: 'math.max(shard.last + 1, S.nowUs), true', replace: 'S.nowUs, true' }],
    foundBy: { file: STEPS, test: 'when a lock is handed over' },
  },
  {
    name: 'a claim that nobody waits for is left by anybody',
    edits: [{ file: USUAL, find: 'if owner ~= session or name', replace: 'session = owner\n      if name' }],
    foundBy: { file: STEPS, test: 'of another session is not left' },
  },
  {
    name: 'a claim that somebody waits for is left by anybody',
    edits: [{ file: LINE, find: 'local ours = claim and claim.session == session', replace: 'local ours = claim' }],
    foundBy: { file: STEPS, test: 'of another session is not left' },
  },
  {
    name: 'a claim is made lighter by anybody',
    edits: [{ file: RARE_STEPS, find: 'if not claim or claim.session ~= session or', replace: 'if not claim or' }],
    foundBy: { file: STEPS, test: 'of another session is not made lighter' },
  },
  {
    name: 'a waiter that leaves takes its weight from what is held',
    edits: [
      {
        file: LINE,
        find: 'if held then line.held = line.held - claim.weight else line.waiting = line.waiting - 1 end',
        replace: 'line.held = line.held - claim.weight\n  if not held then line.waiting = line.waiting - 1 end',
      },
    ],
    foundBy: { file: STEPS, test: 'that only waited takes nothing from what is held when it leaves' },
  },
  {
    name: 'a claim that fits passes those that wait',
    edits: [{ file: LINE, find: 'return line.waiting == 0 and line.capacity', replace: 'return line.capacity' }],
    foundBy: { file: STEPS, test: 'that fits does not pass one that waits' },
  },
  {
    name: 'a grant is not told',
    edits: [
      {
        file: ADMISSION,
        find: "        R.tell(person, 'granted ' .. claim.id .. ' ' .. claim.token .. ' ' .. claim.nonce)\n",
        replace: '',
      },
    ],
    foundBy: { file: STEPS, test: 'that is granted is told with its token' },
  },
  {
    name: 'a grant is believed whatever its token looks like',
    edits: [{ file: 'kit/message.ts', find: ' (\\d{1,19})', replace: ' (\\S+)' }],
    foundBy: { file: 'test/unit/kit/message.test.ts', test: 'is no message' },
  },
  {
    name: 'a grant is believed without the nonce of its claim',
    edits: [{ file: 'kit/awaited.ts', find: ' && nonce && message.nonce === nonce)', replace: ' && nonce)' }],
    foundBy: { file: GARBAGE, test: 'a grant that somebody else has published is not believed' },
  },
  {
    name: 'every claim of a session has the same nonce',
    edits: [
      {
        file: 'engines/redis/queue/session.ts',
        find: 'new Awaited(setup.listener, () => setup.clock.id())',
        replace: "new Awaited(setup.listener, () => setup.options.label.padEnd(32, '0').replaceAll(/\\s/g, '0'))",
      },
    ],
    foundBy: { file: GARBAGE, test: 'who has overheard the nonce of one grant can make no other' },
  },
  {
    name: 'a message that says that a claim is to go is believed by who hears it',
    edits: [
      {
        file: 'kit/awaited.ts',
        find: "else if (message.what === 'evicted' || nonce !== undefined) this.#listener.hinted();",
        replace: "else if (message.what === 'evicted') this.evicted(message.id, '');",
      },
    ],
    foundBy: { file: GARBAGE, test: 'that a claim was evicted is not believed' },
  },
  {
    name: 'what a listener throws because of a message ends the process',
    edits: [
      {
        file: 'engines/redis/client/port.ts',
        find: 'quietly(() => this.#listeners.get(channel)?.message(text));',
        replace: 'this.#listeners.get(channel)?.message(text);',
      },
    ],
    foundBy: { file: 'test/unit/engines/redis/channels.test.ts', test: 'because of a message goes no further' },
  },
  {
    name: 'a claim that has left is still to be evicted',
    edits: [
      { file: LINE, find: "  if person.evicted > 0 then S.rare('forgive', person, claim.id) end\n", replace: '' },
    ],
    foundBy: { file: STEPS, test: 'that has left is no longer to be evicted' },
  },
  {
    name: 'a beat does not look whether the sessions were deleted',
    edits: [{ file: RARE_STEPS, find: " or not redis.call('ZSCORE', sessions, session) then", replace: ' then' }],
    foundBy: { file: STEPS, test: 'whoever beats hears that all is lost after DEL sessions' },
  },
  {
    name: 'tokens do not leap in a new epoch',
    edits: [
      {
        file: RARE,
        find: '    R.leap(shard.longest)\n  end\n\n  function R.alive',
        replace: '  end\n\n  function R.alive',
      },
    ],
    foundBy: { file: EPOCHS, test: 'gives no token again that it has given and forgotten' },
  },
  {
    name: 'a free lock is given away in the first moments of a new epoch',
    edits: [
      { file: USUAL, find: '(epoch ~= knownEpoch or nowMs < since + longest)', replace: '(epoch ~= knownEpoch)' },
    ],
    foundBy: { file: EPOCHS, test: 'grants a free lock to nobody until the guard ends' },
  },
  {
    name: 'a line goes on while the guard lasts',
    edits: [
      { file: ADMISSION, find: '    if line.waiting > 0 and guarded() then return R.stall(lineId) end\n', replace: '' },
    ],
    foundBy: { file: EPOCHS, test: 'hands nothing over until the guard ends' },
  },
  {
    name: 'a server that has become a replica is not left',
    edits: [
      {
        file: 'engines/redis/client/port.ts',
        find: '    if (isDemoted(error)) leave();\n',
        replace: '    void leave;\n',
      },
    ],
    foundBy: {
      file: 'test/engines/redis/demoted.test.ts',
      test: 'an instance by URL leaves a server that was demoted',
    },
  },
  {
    name: 'the subscriber stays with a server that has become a replica',
    edits: [
      {
        file: 'engines/redis/client/ioredis.ts',
        find: '    this.#ask((subscriber) => subscriber.disconnect(true));\n',
        replace: '',
      },
    ],
    foundBy: {
      file: 'test/engines/redis/demoted.test.ts',
      test: 'an instance by URL leaves a server that was demoted',
    },
  },
  {
    name: 'the guard is as long as the ttl of who comes first, whatever the user says',
    edits: [
      {
        file: 'engines/redis/queue/script/records.ts',
        find: 'shard.longest = math.max(shard.longest, leastGuard or 0)\n',
        replace: '',
      },
      { file: USUAL, find: '      longest = math.max(longest, leastGuard or 0)\n', replace: '' },
    ],
    foundBy: { file: 'test/engines/redis/guard.test.ts', test: 'of two ttls the longer counts' },
  },
  {
    name: 'a clock that was set back prolongs the guard',
    edits: [
      {
        file: LINE,
        find: '  if shard.since > now() then shard.since, shard.dirty = S.nowMs, true end\n',
        replace: '  now()\n',
      },
    ],
    foundBy: { file: EPOCHS, test: 'ends its guard after one ttl, though its clock was set back meanwhile' },
  },
  {
    name: 'a damaged shard is made anew without a guard',
    edits: [{ file: RARE_STEPS, find: '      if damage then\n', replace: '      if false then\n' }],
    foundBy: { file: EPOCHS, test: 'state: grants to nobody until the guard ends' },
  },
  {
    name: 'a register that is written for ever after all is forgotten',
    edits: [
      {
        file: 'engines/redis/registers.ts',
        find: "if keepMs == '0' then redis.call('PERSIST', KEYS[1]) else",
        replace: "if keepMs ~= '0' then",
      },
    ],
    foundBy: { file: 'test/conformance/redis.test.ts', test: 'the last write says for how long a register is kept' },
  },
  {
    name: 'who beats fails with the records of the dead',
    edits: [
      {
        file: ADMISSION,
        find: '    local fine, record = pcall(recordOf, id)\n    return fine and record\n',
        replace: '    return recordOf(id)\n',
      },
    ],
    foundBy: { file: GARBAGE, test: 'a record of the dead that was written over (c) costs the living nothing' },
  },
  {
    name: 'a member with another score hides those who wait',
    edits: [{ file: ADMISSION, find: 'first() or R.sift() and first()', replace: 'first()' }],
    foundBy: { file: GARBAGE, test: 'with another score than ours hides nobody who waits' },
  },
  {
    name: 'nobody notices that an inbox has no listener any more',
    edits: [{ file: 'engines/redis/queue/script/rare-steps.ts', find: `heard(person) and '1' or '0'`, replace: `'1'` }],
    foundBy: {
      file: 'test/engines/redis/cluster-stranded.test.ts',
      test: 'a subscriber that is stuck while nobody new listens is replaced',
    },
  },
];
