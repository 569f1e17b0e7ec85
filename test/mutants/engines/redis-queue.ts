import type { TestedBug } from '../test-run.js';

const SCRIPT = 'engines/redis/queue/protocol.ts';
const STEPS = 'test/engines/redis/steps.test.ts';
const EPOCHS = 'test/engines/redis/epochs.test.ts';

export const redisQueue: readonly TestedBug[] = [
  {
    name: 'a free lock is given to a session that is dead',
    edits: [{ file: SCRIPT, find: 'if dies <= nowMs or (ARGV[1]', replace: 'if (ARGV[1]' }],
    foundBy: { file: STEPS, test: 'does not get a free lock' },
    sample: true,
  },
  {
    name: 'a dead session gets into a line',
    edits: [{ file: SCRIPT, find: 'if not person or person.dies <= now() then', replace: 'if not person then' }],
    foundBy: { file: STEPS, test: 'does not get into a line' },
  },
  {
    name: 'a beat revives a dead session that nobody has buried',
    edits: [{ file: SCRIPT, find: 'R.alive(personOf(session))\n', replace: 'personOf(session)\n' }],
    foundBy: { file: STEPS, test: 'is not revived by its beat' },
  },
  {
    name: 'one dead session is not enough to look for dead holders',
    edits: [
      {
        file: SCRIPT,
        find: "redis.call('ZCOUNT', sessions, '-inf', now()) > 0",
        replace: "redis.call('ZCOUNT', sessions, '-inf', now()) > 1",
      },
    ],
    foundBy: { file: STEPS, test: 'keeps nobody out who only tries' },
  },
  {
    name: 'a dead waiter is granted',
    edits: [{ file: SCRIPT, find: 'if not R.alive(person) then', replace: 'if not person then' }],
    foundBy: { file: STEPS, test: 'is not served: who waits behind it is' },
  },
  {
    name: 'a clock that was set back keeps the dead alive',
    edits: [{ file: SCRIPT, find: 'if person then R.dieAt(person, latest) end', replace: '' }],
    foundBy: { file: STEPS, test: 'lives for no longer than its ttl because the clock was set back' },
  },
  {
    name: 'a session is buried before all of its claims',
    edits: [{ file: SCRIPT, find: '        S.more = true\n        break\n', replace: '        S.more = true\n' }],
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
    edits: [{ file: SCRIPT, find: '      last = math.max(last + 1, nowUs)', replace: '      last = nowUs' }],
    foundBy: { file: STEPS, test: 'when a free lock is taken' },
  },
  {
    name: 'the token of a claim that waits is the clock’s alone',
    edits: [{ file: SCRIPT, find: 'math.max(shard.last + 1, S.nowUs), true', replace: 'S.nowUs, true' }],
    foundBy: { file: STEPS, test: 'when a lock is handed over' },
  },
  {
    name: 'a claim that nobody waits for is left by anybody',
    edits: [{ file: SCRIPT, find: 'if owner ~= session or name', replace: 'session = owner\n      if name' }],
    foundBy: { file: STEPS, test: 'of another session is not left' },
  },
  {
    name: 'a claim that somebody waits for is left by anybody',
    edits: [{ file: SCRIPT, find: 'local ours = claim and claim.session == session', replace: 'local ours = claim' }],
    foundBy: { file: STEPS, test: 'of another session is not left' },
  },
  {
    name: 'a claim is made lighter by anybody',
    edits: [{ file: SCRIPT, find: 'if not claim or claim.session ~= session or', replace: 'if not claim or' }],
    foundBy: { file: STEPS, test: 'of another session is not made lighter' },
  },
  {
    name: 'a waiter that leaves takes its weight from what is held',
    edits: [
      {
        file: SCRIPT,
        find: 'if held then line.held = line.held - claim.weight else line.waiting = line.waiting - 1 end',
        replace: 'line.held = line.held - claim.weight\n  if not held then line.waiting = line.waiting - 1 end',
      },
    ],
    foundBy: { file: STEPS, test: 'that only waited takes nothing from what is held when it leaves' },
  },
  {
    name: 'a claim that fits passes those that wait',
    edits: [{ file: SCRIPT, find: 'return line.waiting == 0 and line.capacity', replace: 'return line.capacity' }],
    foundBy: { file: STEPS, test: 'that fits does not pass one that waits' },
  },
  {
    name: 'a grant is not told',
    edits: [
      { file: SCRIPT, find: "        R.tell(person, 'granted ' .. claim.id .. ' ' .. claim.token)\n", replace: '' },
    ],
    foundBy: { file: STEPS, test: 'that is granted is told with its token' },
  },
  {
    name: 'a grant is believed whatever its token looks like',
    edits: [{ file: 'engines/redis/queue/session.ts', find: ' && TOKEN.test(rest!)', replace: '' }],
    foundBy: { file: 'test/engines/redis/garbage.test.ts', test: 'messages that make no sense are passed over' },
  },
  {
    name: 'a claim that has left is still to be evicted',
    edits: [
      { file: SCRIPT, find: "  if person.evicted > 0 then S.rare('forgive', person, claim.id) end\n", replace: '' },
    ],
    foundBy: { file: STEPS, test: 'that has left is no longer to be evicted' },
  },
  {
    name: 'a beat does not look whether the sessions were deleted',
    edits: [{ file: SCRIPT, find: " or not redis.call('ZSCORE', sessions, session) then", replace: ' then' }],
    foundBy: { file: STEPS, test: 'whoever beats hears that all is lost after DEL sessions' },
  },
  {
    name: 'tokens do not leap in a new epoch',
    edits: [
      {
        file: SCRIPT,
        find: '    R.leap(shard.longest)\n  end\n\n  function R.alive',
        replace: '  end\n\n  function R.alive',
      },
    ],
    foundBy: { file: EPOCHS, test: 'gives no token again that it has given and forgotten' },
  },
  {
    name: 'a free lock is given away in the first moments of a new epoch',
    edits: [{ file: SCRIPT, find: '(epoch ~= rest or nowMs < since + longest)', replace: '(epoch ~= rest)' }],
    foundBy: { file: EPOCHS, test: 'grants a free lock to nobody until the guard ends' },
  },
  {
    name: 'a line goes on while the guard lasts',
    edits: [
      { file: SCRIPT, find: '    if line.waiting > 0 and guarded() then return R.stall(lineId) end\n', replace: '' },
    ],
    foundBy: { file: EPOCHS, test: 'hands nothing over until the guard ends' },
  },
  {
    name: 'a clock that was set back prolongs the guard',
    edits: [
      {
        file: SCRIPT,
        find: '  if shard.since > now() then shard.since, shard.dirty = S.nowMs, true end\n',
        replace: '  now()\n',
      },
    ],
    foundBy: { file: EPOCHS, test: 'ends its guard after one ttl, though its clock was set back meanwhile' },
  },
  {
    name: 'a damaged shard is made anew without a guard',
    edits: [{ file: SCRIPT, find: '      if damage then\n', replace: '      if false then\n' }],
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
];
