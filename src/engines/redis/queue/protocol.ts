/**
 * The protocol, as one script. It performs a list of steps, each of them whole, on the three keys of a shard:
 *
 *     sessions   ZSET   session → when it dies, in milliseconds of the server's clock. Only a beat moves that.
 *     state      HASH   shard         last token, longest ttl, since when this epoch lasts, the server's replication id
 *                       s<session>    ttl, when it dies, the tally of its claims (count, held, sum of serials, evicted), inbox
 *                       l<line>       capacity, sum of held weights, number of waiters, frontier (the last granted token)
 *                       c<claim>      serial, weight, since, token, session, line, note
 *                       e<claim>      why it is to go
 *     order      ZSET   all with score 0, so it is sorted by bytes:
 *                       L<line>⏎<token>⏎<claim>   the line. Tokens have 16 digits: the order of bytes is theirs
 *                       S<session>⏎<claim>        the index of a session's claims
 *                       G<line>                   somebody waits there for the guard to end
 *                       (empty)                   so that the key exists as long as there are sessions
 *
 * A line's id is `l` or `s` (lock, semaphore) and its name, which contains no control character.
 *
 *     head → [A held][B held] | [C waits][D waits] ← tail      a claim holds if its token ≤ frontier
 *                             frontier
 *
 * - All keys are declared with every call, so a migrating slot can't hide one. The three exist together or not at all,
 *   except that the state of a shard without sessions stays for its tokens. If one is missing (deleted, evicted), all
 *   claims are lost: everybody hears it with the next beat and opens again.
 * - Nothing is left of a line without claims. A waiting claim of a dead session is removed when it is met, not skipped.
 * - No step can fail after the first write: a full server refuses only a script that has not written yet, hence the
 *   idle first write where something is to be freed or renewed. A PUBLISH that is forbidden costs the hint, not the step.
 * - Only the server's clock is used. Tokens are max(last + 1, µs): they outlive a lost memory unless the clock goes back.
 * - The epoch guard. After a restart or a failover the memory may lack claims whose owners still believe in them, for at
 *   most their ttl. So nobody new is granted until the longest ttl has passed since the new epoch was noticed (or, where
 *   nothing is remembered, since the server started), and tokens leap by as much.
 *
 * Cost: enter, leave, reweigh and beat O(log n), and O(log n) for each claim granted on the way; an enter that is blocked
 * while there are dead sessions looks at all claims that hold its line; a beat whose roster differs lists its claims. What
 * would take long (thousands of readers to be let in, a dead session with thousands of claims) is done in several calls.
 */
import { defineScript } from '../client/port.js';

/**
 * How many claims one call may remove or grant beside those that its steps are about: it blocks the whole server for so
 * long, and Lua can't pass more than some thousand words to a command.
 */
const BUDGET = 400;

/**
 * ARGV: guard (0 or 1), prefix of inboxes, then the steps: a word and its arguments.
 * Answer: in how many milliseconds to look again (-1: no need to, -2: at once, there is more to do), then theirs.
 */
export const STEPS = defineScript(String.raw`
local sessions, state, order = KEYS[1], KEYS[2], KEYS[3]
local answers, at = { -1 }, 3
local nowMs, nowUs, epoch, canGuard, damaged

-- The usual steps ---------------------------------------------------------------------------------------------------
--
-- An enter into a line without claims, and a leave that nobody waits for, need nothing of what stands below, and making
-- it (functions and tables are made anew with every call) would cost three times as much as these steps do. The first
-- step that is not one of them ends this part; nothing of it has been written then.

-- The replication id is new after a restart and after a failover (and when a first replica comes, which costs a pause).
-- There is no cheaper sign of a new epoch.
local function findEpoch()
  local info = redis.pcall('INFO', 'replication')
  local _, before = string.find(type(info) == 'string' and info or '', 'master_replid:', 1, true)
  canGuard = before ~= nil
  epoch = before and string.sub(info, before + 1, before + 40) or ''
end

do
  -- The steps of one call are those of one session, but for the moment in which it is replaced.
  local session, ttl, dies, count, held, sum, evicted, inbox
  local last, longest, since, rest
  local entered, changed = false, false

  while ARGV[at] == 'enter' or ARGV[at] == 'leave' do
    local id, lineId, claimText, lineText = ARGV[at + 1], ARGV[at + 3], nil, nil
    local claimField, lineField = 'c' .. id, 'l' .. lineId
    if not session then
      local texts = redis.call('HMGET', state, claimField, lineField, 'shard', 's' .. ARGV[at + 2])
      if not texts[3] or not texts[4] then break end
      session, claimText, lineText = ARGV[at + 2], texts[1], texts[2]
      last, longest, since = struct.unpack('<ddd', texts[3])
      rest = string.sub(texts[3], 25)
      ttl, dies, count, held, sum, evicted = struct.unpack('<dddddd', texts[4])
      inbox = string.sub(texts[4], 49)
    elseif session == ARGV[at + 2] then
      local texts = redis.call('HMGET', state, claimField, lineField)
      claimText, lineText = texts[1], texts[2]
    else
      break
    end

    if ARGV[at] == 'enter' then
      local serial, weight, capacity, note = ARGV[at + 4], ARGV[at + 5], ARGV[at + 6], ARGV[at + 8]
      if claimText or lineText or (weight ~= capacity and tonumber(weight) > tonumber(capacity)) then break end
      if not nowMs then
        local time = redis.call('TIME')
        nowMs, nowUs = time[1] * 1000 + math.floor(time[2] / 1000), time[1] * 1000000 + time[2]
        if ARGV[1] == '1' then findEpoch() end
      end
      if dies <= nowMs or (ARGV[1] == '1' and (epoch ~= rest or nowMs < since + longest)) then break end
      last = math.max(last + 1, nowUs)
      local token = string.format('%016d', last)
      local spot = 'L' .. lineId .. '\n' .. token .. '\n' .. id
      if redis.call('ZADD', order, '0', spot, '0', 'S' .. session .. '\n' .. id) ~= 2 then damaged = true break end
      redis.call('HSET', state,
        claimField, struct.pack('<dddc16I4c0I4c0I4c0', serial, weight, nowMs, token,
          #session, session, #lineId, lineId, #note, note),
        lineField, struct.pack('<dddc16', capacity, weight, 0, token))
      count, held, sum, entered = count + 1, held + 1, sum + serial, true
      answers[#answers + 1] = 'h' .. token
      at = at + 9
    else
      if not claimText or not lineText or evicted > 0 then break end
      local serial, weight, _, token, owner, name = struct.unpack('<dddc16I4c0I4c0', claimText)
      local capacity, lineHeld, waiting, frontier = struct.unpack('<dddc16', lineText)
      if owner ~= session or name ~= lineId or waiting > 0 then break end
      local spot = 'L' .. lineId .. '\n' .. token .. '\n' .. id
      if redis.call('ZREM', order, spot, 'S' .. session .. '\n' .. id) ~= 2 then damaged = true break end
      if lineHeld > weight then
        redis.call('HDEL', state, claimField)
        redis.call('HSET', state, lineField, struct.pack('<dddc16', capacity, lineHeld - weight, 0, frontier))
      else
        redis.call('HDEL', state, claimField, lineField)
      end
      count, held, sum = count - 1, held - 1, sum - serial
      answers[#answers + 1] = 1
      at = at + 4
    end
    changed = true
  end

  if changed then
    local person = struct.pack('<dddddd', ttl, dies, count, held, sum % 4294967296, evicted) .. inbox
    if entered then
      redis.call('HSET', state, 's' .. session, person, 'shard', struct.pack('<ddd', last, longest, since) .. rest)
    else
      redis.call('HSET', state, 's' .. session, person)
    end
  end
end
if not ARGV[at] and not damaged then return answers end

-- All others --------------------------------------------------------------------------------------------------------

local S = {
  damaged = damaged, guarding = ARGV[1] == '1', inboxes = ARGV[2], nowMs = nowMs, nowUs = nowUs,
  -- What was read, and has been changed, of sessions, lines and claims; written at the end.
  people = {}, lines = {}, claims = {}, gone = {},
  budget = ${BUDGET},
  -- Members that are to be added to the order and removed from it, in this order; written before anybody reads it.
  adds = {}, removals = {}, messages = {},
}

-- How many arguments a step has, and what is answered where there is no state.
local arity = { open = 4, enter = 8, leave = 3, reweigh = 3, beat = 5, look = 2, reap = 2, evict = 3 }
local nothing = { open = 0, enter = 'g', leave = 0, reweigh = 0, beat = 'g', look = 'g', reap = 0, evict = 0 }

local function now()
  if not S.nowMs then
    local time = redis.call('TIME')
    S.nowMs, S.nowUs = time[1] * 1000 + math.floor(time[2] / 1000), time[1] * 1000000 + time[2]
  end
  return S.nowMs
end

-- What enter and leave need of the state, read at once.
local read = {}
do
  local fields, from = { 'shard' }, at
  while ARGV[from] do
    local step = ARGV[from]
    if step == 'enter' or step == 'leave' then
      local count = #fields
      fields[count + 1] = 'c' .. ARGV[from + 1]
      fields[count + 2] = 's' .. ARGV[from + 2]
      fields[count + 3] = 'l' .. ARGV[from + 3]
    end
    from = from + arity[step] + 1
  end
  local texts = redis.call('HMGET', state, unpack(fields))
  for index = 1, #fields do read[fields[index]] = texts[index] end
end

local function get(field)
  local text = read[field]
  if text == nil then
    text = redis.call('HGET', state, field)
    read[field] = text
  end
  return text
end

local shard = { last = 0, longest = 0, since = 0, epoch = '' }
if read.shard then
  shard.last, shard.longest, shard.since = struct.unpack('<ddd', read.shard)
  shard.epoch = string.sub(read.shard, 25)
end

-- Whether nobody new may be granted. Notices a new epoch: asked before every grant.
local function guarded()
  if not S.guarding then return false end
  if not epoch then findEpoch() end
  if canGuard and epoch ~= shard.epoch then S.rare('beginEpoch') end
  -- A clock that was set back must not prolong it.
  if shard.since > now() then shard.since, shard.dirty = S.nowMs, true end
  return S.nowMs < shard.since + shard.longest
end

local function personOf(id)
  local person = S.people[id]
  if person == nil then
    person = false
    local text = get('s' .. id)
    if text then
      local ttl, dies, count, held, sum, evicted = struct.unpack('<dddddd', text)
      person = {
        id = id, ttl = ttl, dies = dies, count = count, held = held, sum = sum, evicted = evicted,
        inbox = string.sub(text, 49),
      }
    end
    S.people[id] = person
  end
  return person
end

local function lineOf(id)
  local line = S.lines[id]
  if not line then
    line = { capacity = false, held = 0, waiting = 0, frontier = '0000000000000000' }
    local text = get('l' .. id)
    if text then line.capacity, line.held, line.waiting, line.frontier = struct.unpack('<dddc16', text) end
    S.lines[id] = line
  end
  return line
end

local function claimOf(id)
  local claim = S.claims[id]
  if claim == nil then
    claim = false
    local text = get('c' .. id)
    if text then
      claim = { id = id }
      claim.serial, claim.weight, claim.since, claim.token, claim.session, claim.line, claim.note =
        struct.unpack('<dddc16I4c0I4c0I4c0', text)
    end
    S.claims[id] = claim
  end
  return claim
end

-- Whether a claim would hold at once. A line without claims has whatever capacity the next one brings.
local function fits(line, weight, capacity)
  if line.held == 0 and line.waiting == 0 then line.capacity = capacity end
  return line.waiting == 0 and line.capacity == capacity and line.held + weight <= capacity and not guarded()
end

local function tally(person, claim, count, held)
  person.count, person.held, person.dirty = person.count + count, person.held + held, true
  person.sum = (person.sum + count * claim.serial) % 4294967296
end

-- Somebody is about to read the order, or this call is at its end.
local function settle()
  local adds, removals = S.adds, S.removals
  if #adds > 0 then
    if redis.call('ZADD', order, unpack(adds)) ~= #adds / 2 then S.damaged = true end
    S.adds = {}
  end
  if #removals > 0 then
    if redis.call('ZREM', order, unpack(removals)) ~= #removals then S.damaged = true end
    S.removals = {}
  end
end

-- Takes a claim out of its line, its session's index and tally. Who fits then is for the caller to admit.
local function drop(claim)
  local removals, count, line = S.removals, #S.removals, lineOf(claim.line)
  removals[count + 1] = 'L' .. claim.line .. '\n' .. claim.token .. '\n' .. claim.id
  removals[count + 2] = 'S' .. claim.session .. '\n' .. claim.id
  local held = claim.token <= line.frontier
  if held then line.held = line.held - claim.weight else line.waiting = line.waiting - 1 end
  line.dirty = true
  S.claims[claim.id], S.gone[claim.id] = false, true
  local person = personOf(claim.session)
  if not person then return end
  tally(person, claim, -1, held and -1 or 0)
  if person.evicted > 0 then S.rare('forgive', person, claim.id) end
end

local function place(claim)
  if claim.token <= lineOf(claim.line).frontier then return 'h' .. claim.token end
  S.somebodyWaits = true
  return 'w'
end

-- The steps -------------------------------------------------------------------------------------------------------

-- Answers h<token> held, w waiting, r refused, a ask again, m<capacity> the line has another capacity, g the session is gone.
function S.enter(id, session, lineId, serial, weight, capacity, wait, note)
  local person = personOf(session)
  if not person or person.dies <= now() then return 'g' end
  local claim = claimOf(id)
  if claim then return claim.session == session and place(claim) or 'g' end
  local line = lineOf(lineId)
  weight, capacity = tonumber(weight), tonumber(capacity)
  local granted = fits(line, weight, capacity)
  if not granted then
    S.rare('clear', lineId, line)
    granted = fits(line, weight, capacity)
    if line.capacity ~= capacity then return 'm' .. line.capacity end
    -- Some of the dead may still be in the way.
    if not granted and wait == '0' then return S.more and 'a' or 'r' end
  end
  -- It was left in this same call: its old place has to be gone before it gets a new one.
  if S.gone[id] then settle() end
  now()
  shard.last, shard.dirty = math.max(shard.last + 1, S.nowUs), true
  local token = string.format('%016d', shard.last)
  claim = {
    id = id, serial = tonumber(serial), weight = weight, since = S.nowMs, token = token,
    session = session, line = lineId, note = note, dirty = true,
  }
  S.claims[id] = claim
  local adds, count = S.adds, #S.adds
  adds[count + 1] = '0'
  adds[count + 2] = 'L' .. lineId .. '\n' .. token .. '\n' .. id
  adds[count + 3] = '0'
  adds[count + 4] = 'S' .. session .. '\n' .. id
  line.dirty = true
  if granted then
    line.held, line.frontier = line.held + weight, token
  else
    line.waiting = line.waiting + 1
    if guarded() then S.rare('stall', lineId) end
  end
  tally(person, claim, 1, granted and 1 or 0)
  return place(claim)
end

-- Answers 1, or 0 if it did not stand there.
function S.leave(id, session, lineId)
  local claim = claimOf(id)
  local ours = claim and claim.session == session
  if ours then drop(claim) end
  local line = lineOf(lineId)
  if line.waiting > 0 then S.rare('admit', lineId, line) end
  return ours and 1 or 0
end

-- What is rare ----------------------------------------------------------------------------------------------------

function S.rare(name, ...)
  if not S.rarely then S.rarely = S.makeRare() end
  return S.rarely[name](...)
end

function S.makeRare()
  local R = {}

  -- All members between two bounds.
  function R.range(from, to, limit)
    settle()
    return redis.call('ZRANGEBYLEX', order, from, to, 'LIMIT', 0, limit or -1)
  end

  function R.leap(ms)
    now()
    shard.last, shard.dirty = math.max(shard.last, S.nowUs) + ms * 1000, true
  end

  -- Where nothing is remembered, the epoch began when the server did. Its uptime is a difference of whole seconds, so it
  -- may have begun up to a second later than that says.
  function R.beginEpoch()
    shard.since = now()
    if shard.epoch == '' then
      local info = redis.pcall('INFO', 'server')
      local uptime = type(info) == 'string' and string.match(info, 'uptime_in_seconds:(%d+)')
      if uptime then shard.since = math.min(S.nowMs, 1000 * (math.floor(S.nowMs / 1000) + 1 - uptime)) end
    end
    shard.epoch = epoch
    R.leap(shard.longest)
  end

  function R.alive(person)
    return person and person.dies > now() and person
  end

  -- The sessions are sorted by their deaths, so that the dead can be found.
  function R.dieAt(person, ms)
    person.dies, person.dirty = ms, true
    redis.call('ZADD', sessions, ms, person.id)
  end

  -- The inbox begins with its kind: s for a channel of the shard's own, p for a plain one.
  function R.tell(person, text)
    local publish = string.sub(person.inbox, 1, 1) == 's' and 'SPUBLISH' or 'PUBLISH'
    S.messages[#S.messages + 1] = { publish, S.inboxes .. string.sub(person.inbox, 2), text }
  end

  function R.forgive(person, id)
    if redis.call('HDEL', state, 'e' .. id) == 1 then person.evicted = person.evicted - 1 end
    read['e' .. id] = false
  end

  function R.stall(lineId)
    redis.call('ZADD', order, 0, 'G' .. lineId)
  end

  function R.postpone(lineId)
    S.more = true
    R.stall(lineId)
  end

  -- Grants from the frontier on while they fit, and tells them. Waiting claims of the dead go.
  function R.admit(lineId, line)
    if line.waiting > 0 and guarded() then return R.stall(lineId) end
    local from = 'L' .. lineId .. '\n'
    while line.waiting > 0 do
      if S.budget == 0 then return R.postpone(lineId) end
      local member = R.range('(' .. from .. line.frontier .. '\n\255', '(' .. from .. '\255', 1)[1]
      local claim = member and claimOf(string.sub(member, #from + 18))
      if not claim then
        S.damaged = true
        return
      end
      local person = personOf(claim.session)
      S.budget = S.budget - 1
      if not R.alive(person) then
        drop(claim)
      elseif line.held + claim.weight <= line.capacity then
        line.held, line.frontier, line.waiting, line.dirty = line.held + claim.weight, claim.token, line.waiting - 1, true
        tally(person, claim, 0, 1)
        R.tell(person, 'granted ' .. claim.id .. ' ' .. claim.token)
      else
        return
      end
    end
  end

  -- Frees a line of dead holders, so that nobody is refused or waits because of them.
  function R.clear(lineId, line)
    if line.held > 0 and redis.call('ZCOUNT', sessions, '-inf', now()) > 0 then
      local from = 'L' .. lineId .. '\n'
      for _, member in ipairs(R.range('[' .. from, '[' .. from .. line.frontier .. '\n\255')) do
        local claim = claimOf(string.sub(member, #from + 18))
        if claim and not R.alive(personOf(claim.session)) then
          if S.budget == 0 then return R.postpone(lineId) end
          S.budget = S.budget - 1
          drop(claim)
        end
      end
    end
    R.admit(lineId, line)
  end

  -- Removes dead sessions and everything they had, but only so much at a time.
  function R.bury()
    local touched = {}
    for _, id in ipairs(redis.call('ZRANGEBYSCORE', sessions, '-inf', now(), 'LIMIT', 0, 20)) do
      local index = R.range('[S' .. id .. '\n', '(S' .. id .. '\n\255', S.budget)
      for _, member in ipairs(index) do
        local claim = claimOf(string.sub(member, #id + 3))
        if claim then
          drop(claim)
          touched[claim.line] = lineOf(claim.line)
        end
      end
      S.budget = S.budget - #index
      if S.budget == 0 then
        S.more = true
        break
      end
      redis.call('ZREM', sessions, id)
      redis.call('HDEL', state, 's' .. id)
      S.people[id], S.buried = false, true
    end
    for lineId, line in pairs(touched) do R.admit(lineId, line) end
  end

  -- What is due whoever comes by. A clock that was set back must not keep the dead alive for longer than any ttl.
  function R.tidy()
    R.bury()
    local latest = now() + shard.longest
    for _, id in ipairs(redis.call('ZRANGEBYSCORE', sessions, '(' .. latest, '+inf', 'LIMIT', 0, 20)) do
      local person = personOf(id)
      if person then R.dieAt(person, latest) end
    end
    if guarded() then return end
    for _, member in ipairs(R.range('[G', '(H', ${BUDGET})) do
      if S.budget == 0 then
        S.more = true
        return
      end
      redis.call('ZREM', order, member)
      local lineId = string.sub(member, 2)
      R.admit(lineId, lineOf(lineId))
    end
  end

  -- A new session. The first one makes the keys; what a damaged shard still has belongs to nobody.
  function R.open(id, inbox, kind, ttl)
    if personOf(id) then return canGuard ~= false and 1 or 0 end
    ttl = tonumber(ttl)
    settle()
    local there = redis.call('EXISTS', sessions, order)
    if there < 2 or not read.shard then
      local damage = there > 0
      -- The state knew the longest ttl; if it is gone, the last death among the sessions says as much.
      local lastDeath = damage and redis.call('ZREVRANGE', sessions, 0, 0, 'WITHSCORES')[2]
      redis.call('UNLINK', sessions, order, state)
      redis.call('ZADD', order, 0, '')
      read, S.people, S.lines, S.claims, shard.dirty = { shard = true }, {}, {}, {}, true
      -- First, because it would take the server's start for the beginning of the epoch.
      guarded()
      if damage then
        shard.since, shard.longest = now(), math.max(ttl, shard.longest, (lastDeath or 0) - now())
        R.leap(shard.longest)
      end
    end
    local person = { id = id, ttl = ttl, count = 0, held = 0, sum = 0, evicted = 0, inbox = kind .. inbox }
    S.people[id] = person
    R.dieAt(person, now() + ttl)
    local grows = ttl > shard.longest
    if grows then shard.longest, shard.dirty = ttl, true end
    if guarded() and grows then R.leap(ttl) end
    return canGuard ~= false and 1 or 0
  end

  function R.reweigh(id, session, weight)
    local claim = claimOf(id)
    weight = tonumber(weight)
    if not claim or claim.session ~= session or weight >= claim.weight then return 0 end
    local line = lineOf(claim.line)
    if claim.token <= line.frontier then line.held, line.dirty = line.held - claim.weight + weight, true end
    claim.weight, claim.dirty = weight, true
    R.admit(claim.line, line)
    return 1
  end

  -- Answers g if the session is gone; else why claims are to go (id, reason) and, if the roster differs from the index,
  -- '' and that index (id, line, place).
  function R.beat(session, count, held, sum, unsettled)
    local person = R.alive(personOf(session))
    if not person then return 'g' end
    -- A write that a full server does not refuse: after it, nothing is.
    redis.call('ZREM', order, '\n')
    if not redis.call('ZSCORE', order, '') or not redis.call('ZSCORE', sessions, session) then
      S.damaged = true
      return 'g'
    end
    R.dieAt(person, now() + person.ttl)
    R.tidy()
    S.somebodyWaits = S.somebodyWaits or person.count > person.held
    local differs = not R.agrees(person, tonumber(count), tonumber(held), tonumber(sum), unsettled)
    local answer, index = {}, {}
    if not differs and person.evicted == 0 then return answer end
    for _, member in ipairs(R.range('[S' .. session .. '\n', '(S' .. session .. '\n\255')) do
      local claim = claimOf(string.sub(member, #session + 3))
      local reason = person.evicted > 0 and get('e' .. claim.id)
      if reason then
        answer[#answer + 1] = claim.id
        answer[#answer + 1] = reason
      end
      index[#index + 1] = claim
    end
    if not differs then return answer end
    answer[#answer + 1] = ''
    for _, claim in ipairs(index) do
      answer[#answer + 1] = claim.id
      answer[#answer + 1] = claim.line
      answer[#answer + 1] = place(claim)
    end
    return answer
  end

  -- Whether a session's tally, less what has a call in flight, is what the session believes.
  function R.agrees(person, count, held, sum, unsettled)
    for id in string.gmatch(unsettled, '%S+') do
      local claim = claimOf(id)
      if claim and claim.session == person.id then
        count, sum = count + 1, sum + claim.serial
        if claim.token <= lineOf(claim.line).frontier then held = held + 1 end
      end
    end
    return person.count == count and person.held == held and person.sum == sum % 4294967296
  end

  -- How a claim stands: for whoever may have missed a message.
  function R.look(id, session)
    local claim = claimOf(id)
    return claim and claim.session == session and place(claim) or 'g'
  end

  -- Looks after what is due. Also how a session ends: its own death comes first. 1: there is more of it to bury.
  function R.reap(session, ends)
    redis.call('ZREM', order, '\n')
    local person = ends == '1' and personOf(session)
    if person then R.dieAt(person, 0) end
    R.tidy()
    S.somebodyWaits = true
    return person and S.people[session] and 1 or 0
  end

  function R.evict(id, lineName, reason)
    local claim = claimOf(id)
    local person = claim and string.sub(claim.line, 2) == lineName and R.alive(personOf(claim.session))
    if not person then return 0 end
    if redis.call('HSET', state, 'e' .. id, reason) == 1 then
      person.evicted, person.dirty = person.evicted + 1, true
    end
    read['e' .. id] = reason
    R.tell(person, 'evicted ' .. id .. ' ' .. reason)
    return 1
  end

  -- One of the keys turned out to be missing. Everything but the tokens goes, and everybody hears that it is gone.
  function R.abandon()
    R.leap(shard.longest)
    redis.call('UNLINK', sessions, order, state)
    redis.call('HSET', state, 'shard', struct.pack('<ddd', shard.last, shard.longest, now()) .. shard.epoch)
    local all, from = { -1 }, 3
    while ARGV[from] do
      all[#all + 1] = nothing[ARGV[from]]
      from = from + arity[ARGV[from]] + 1
    end
    return all
  end

  -- When to look again: when the guard ends, or when the next session dies unless it beats.
  function R.nextLook()
    if guarded() then return shard.since + shard.longest - now() end
    local first = redis.call('ZRANGE', sessions, 0, 0, 'WITHSCORES')
    return first[2] and math.max(0, tonumber(first[2]) - now()) or -1
  end

  return R
end

-- The call --------------------------------------------------------------------------------------------------------

while ARGV[at] do
  local step = ARGV[at]
  local answer = nothing[step]
  if step == 'enter' or step == 'leave' then
    if read.shard then
      answer = S[step](
        ARGV[at + 1], ARGV[at + 2], ARGV[at + 3], ARGV[at + 4], ARGV[at + 5], ARGV[at + 6], ARGV[at + 7], ARGV[at + 8])
    end
  elseif read.shard or step == 'open' then
    answer = S.rare(step, ARGV[at + 1], ARGV[at + 2], ARGV[at + 3], ARGV[at + 4], ARGV[at + 5])
  end
  answers[#answers + 1] = answer
  at = at + arity[step] + 1
end
if S.more then answers[1] = -2 elseif S.somebodyWaits then answers[1] = S.rare('nextLook') end
settle()
if S.damaged then return S.rare('abandon') end

local set, del = {}, {}
for id in pairs(S.gone) do del[#del + 1] = 'c' .. id end
for id, claim in pairs(S.claims) do
  if claim and claim.dirty then
    set[#set + 1] = 'c' .. id
    set[#set + 1] = struct.pack('<dddc16I4c0I4c0I4c0', claim.serial, claim.weight, claim.since, claim.token,
      #claim.session, claim.session, #claim.line, claim.line, #claim.note, claim.note)
  end
end
for id, line in pairs(S.lines) do
  if line.dirty and line.held == 0 and line.waiting == 0 then
    del[#del + 1] = 'l' .. id
  elseif line.dirty then
    set[#set + 1] = 'l' .. id
    set[#set + 1] = struct.pack('<dddc16', line.capacity, line.held, line.waiting, line.frontier)
  end
end
for id, person in pairs(S.people) do
  if person and person.dirty then
    set[#set + 1] = 's' .. id
    set[#set + 1] = struct.pack('<dddddd', person.ttl, person.dies, person.count, person.held, person.sum, person.evicted)
      .. person.inbox
  end
end
if shard.dirty then
  set[#set + 1] = 'shard'
  set[#set + 1] = struct.pack('<ddd', shard.last, shard.longest, shard.since) .. shard.epoch
end
if #del > 0 then redis.call('HDEL', state, unpack(del)) end
if #set > 0 then redis.call('HSET', state, unpack(set)) end
-- Without sessions only the tokens matter.
if S.buried and redis.call('EXISTS', sessions) == 0 then
  -- Whoever still has claims was deleted: to take the rest away would hide it from those who come.
  if #redis.call('ZRANGEBYLEX', order, '[S', '(T', 'LIMIT', 0, 1) > 0 then return S.rare('abandon') end
  redis.call('UNLINK', order)
end
for _, message in ipairs(S.messages) do redis.pcall(unpack(message)) end
return answers
`);
