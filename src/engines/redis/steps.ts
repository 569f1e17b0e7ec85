/**
 * The protocol, as one script. It performs a list of steps, each of them whole, on the three keys of a shard:
 *
 *     sessions   ZSET   session → when it dies, in milliseconds of the server's clock. Only a beat moves that.
 *     state      HASH   shard         last token, longest ttl, since when this epoch lasts, the server's run id
 *                       s<session>    inbox, its kind, ttl, and the tally of its claims: count, held, sum of serials, evicted
 *                       l<line>       capacity, sum of held weights, frontier (the last granted token), number of waiters
 *                       c<claim>      session, serial, weight, token, since, line, note; a line each
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
 *   most their ttl. So nobody new is granted until the longest ttl has passed since the new run id was noticed (or, where
 *   nothing is remembered, since the server started), and tokens leap by as much.
 *
 * Cost: enter, leave, reweigh and beat O(log n), and O(log n) for each claim granted on the way; an enter that is blocked
 * while there are dead sessions looks at all claims that hold its line; a beat whose roster differs lists its claims.
 */
import { defineScript } from './port.js';

/** How many claims of the dead one script removes: it blocks the whole server for so long. */
const BURIED_AT_ONCE = 200;

/** ARGV: guard (0 or 1), prefix of inboxes, whether something is freed or renewed (0 or 1), then the steps. */
export const STEPS = defineScript(String.raw`
local sessions, state, order = KEYS[1], KEYS[2], KEYS[3]
local guarding, inboxes = ARGV[1] == '1', ARGV[2]
local match, format = string.match, string.format

local time = redis.call('TIME')
local nowMs = time[1] * 1000 + math.floor(time[2] / 1000)
local nowUs = time[1] * 1000000 + time[2]

local whole = redis.call('EXISTS', sessions, state, order) == 3
if ARGV[3] == '1' and whole then redis.call('ZREM', order, '\n') end

-- Fields of the state: what was read, and what is to be written at the end.
local read, changed = {}, {}

local function get(field)
  local text = read[field]
  if text == nil then
    text = redis.call('HGET', state, field)
    read[field] = text
  end
  return text
end

local function put(field, text)
  read[field] = text
  changed[field] = text
end

-- The shard and its epoch -----------------------------------------------------------------------------------------

local shard = { last = 0, longest = 0, since = 0, run = '' }
do
  local text = get('shard')
  if text then
    local last, longest, since, run = match(text, '^(%d+) (%d+) (%d+) (%x*)$')
    shard = { last = tonumber(last), longest = tonumber(longest), since = tonumber(since), run = run }
  end
end

local function leap(ms)
  shard.last = math.max(shard.last, nowUs) + ms * 1000
  shard.dirty = true
end

local canGuard = true
if guarding then
  local info = redis.pcall('INFO', 'server')
  local run = type(info) == 'string' and match(info, 'run_id:(%x+)')
  if not run then
    canGuard = false
  elseif run ~= shard.run then
    if shard.run == '' then
      shard.since = nowMs - 1000 * (tonumber(match(info, 'uptime_in_seconds:(%d+)')) or 0)
    else
      shard.since = nowMs
    end
    shard.run = run
    leap(shard.longest)
  end
end

local function guarded()
  return guarding and nowMs < shard.since + shard.longest
end

-- Sessions, lines, claims -----------------------------------------------------------------------------------------

local people, lines, claims = {}, {}, {}

local function personOf(id)
  local person = people[id]
  if person == nil then
    person = false
    local text = get('s' .. id)
    if text then
      local inbox, kind, ttl, count, held, sum, evicted =
        match(text, '^(%S+) (%a) (%d+) (%d+) (%d+) (%d+) (%d+)$')
      local dies = redis.call('ZSCORE', sessions, id)
      person = {
        id = id, inbox = inbox, kind = kind, ttl = tonumber(ttl), count = tonumber(count), held = tonumber(held),
        sum = tonumber(sum), evicted = tonumber(evicted), alive = dies and tonumber(dies) > nowMs,
      }
    end
    people[id] = person
  end
  return person
end

local function tally(person, claim, count, held)
  person.count = person.count + count
  person.held = person.held + held
  person.sum = (person.sum + count * claim.serial) % 4294967296
  person.dirty = true
end

local function lineOf(id)
  local line = lines[id]
  if not line then
    local text = get('l' .. id)
    if text then
      local capacity, held, frontier, waiting = match(text, '^(%d+) (%d+) (%d+) (%d+)$')
      line = {
        id = id, capacity = tonumber(capacity), held = tonumber(held), frontier = frontier, waiting = tonumber(waiting),
      }
    else
      line = { id = id, capacity = false, held = 0, frontier = '0000000000000000', waiting = 0 }
    end
    lines[id] = line
  end
  return line
end

local function claimOf(id)
  local claim = claims[id]
  if claim == nil then
    claim = false
    local text = get('c' .. id)
    if text then
      local session, serial, weight, token, since, line, note =
        match(text, '^(.-)\n(.-)\n(.-)\n(.-)\n(.-)\n(.-)\n(.*)$')
      claim = {
        id = id, session = session, serial = tonumber(serial), weight = tonumber(weight), token = token,
        since = since, line = line, note = note,
      }
    end
    claims[id] = claim
  end
  return claim
end

local function keep(claim)
  claims[claim.id] = claim
  put('c' .. claim.id, table.concat({
    claim.session, claim.serial, claim.weight, claim.token, claim.since, claim.line, claim.note,
  }, '\n'))
end

local function holds(claim)
  return claim.token <= lineOf(claim.line).frontier
end

local function spot(claim)
  return 'L' .. claim.line .. '\n' .. claim.token .. '\n' .. claim.id
end

local messages = {}

local function tell(person, text)
  messages[#messages + 1] = { person.kind == 's' and 'SPUBLISH' or 'PUBLISH', inboxes .. person.inbox, text }
end

-- What happens to a line ------------------------------------------------------------------------------------------

-- Takes a claim out of its line, its session's index and tally. Who fits then is for the caller to admit.
local function drop(claim)
  redis.call('ZREM', order, spot(claim), 'S' .. claim.session .. '\n' .. claim.id)
  local line, held = lineOf(claim.line), holds(claim)
  if held then line.held = line.held - claim.weight else line.waiting = line.waiting - 1 end
  line.dirty = true
  claims[claim.id] = false
  put('c' .. claim.id, false)
  local person = personOf(claim.session)
  if not person then return end
  tally(person, claim, -1, held and -1 or 0)
  if person.evicted > 0 and get('e' .. claim.id) then
    put('e' .. claim.id, false)
    person.evicted = person.evicted - 1
  end
end

-- Grants from the frontier on while they fit, and tells them.
local function admit(line)
  if line.waiting > 0 and guarded() then
    redis.call('ZADD', order, 0, 'G' .. line.id)
    return
  end
  while line.waiting > 0 do
    local from = 'L' .. line.id .. '\n'
    local member = redis.call('ZRANGEBYLEX', order, '(' .. from .. line.frontier .. '\n\255', '(' .. from .. '\255', 'LIMIT', 0, 1)[1]
    -- That nobody is there can't be, but if it were, it must not end a script that has written.
    if not member then line.waiting = 0 return end
    local claim = claimOf(string.sub(member, #from + 18))
    local person = personOf(claim.session)
    if not (person and person.alive) then
      drop(claim)
    elseif line.held + claim.weight <= line.capacity then
      line.held, line.frontier, line.waiting, line.dirty = line.held + claim.weight, claim.token, line.waiting - 1, true
      tally(person, claim, 0, 1)
      tell(person, 'granted ' .. claim.id .. ' ' .. claim.token)
    else
      return
    end
  end
end

local someDead
local function anyDead()
  if someDead == nil then someDead = redis.call('ZCOUNT', sessions, '-inf', nowMs) > 0 end
  return someDead
end

-- Frees a line of dead holders, so that nobody is refused or waits because of them.
local function reap(line)
  if line.held > 0 and anyDead() then
    local from = 'L' .. line.id .. '\n'
    for _, member in ipairs(redis.call('ZRANGEBYLEX', order, '[' .. from, '[' .. from .. line.frontier .. '\n\255')) do
      local claim = claimOf(string.sub(member, #from + 18))
      local person = personOf(claim.session)
      if not (person and person.alive) then drop(claim) end
    end
  end
  admit(line)
end

local buried = false

-- Removes dead sessions and everything they had, but only so much at a time.
local function bury()
  local budget, touched = ${BURIED_AT_ONCE}, {}
  for _, id in ipairs(redis.call('ZRANGEBYSCORE', sessions, '-inf', nowMs, 'LIMIT', 0, 20)) do
    local index = redis.call('ZRANGEBYLEX', order, '[S' .. id .. '\n', '(S' .. id .. '\n\255', 'LIMIT', 0, budget)
    for _, member in ipairs(index) do
      local claim = claimOf(string.sub(member, #id + 3))
      drop(claim)
      touched[claim.line] = true
    end
    budget = budget - #index
    if budget == 0 then break end
    redis.call('ZREM', sessions, id)
    put('s' .. id, false)
    people[id], buried = false, true
  end
  for line in pairs(touched) do admit(lineOf(line)) end
  someDead = nil
end

-- What is due whoever comes by. A clock that was set back must not keep the dead alive for longer than any ttl.
local function tidy()
  bury()
  for _, id in ipairs(redis.call('ZRANGEBYSCORE', sessions, '(' .. nowMs + shard.longest, '+inf', 'LIMIT', 0, 20)) do
    redis.call('ZADD', sessions, nowMs + shard.longest, id)
  end
  if guarded() then return end
  for _, member in ipairs(redis.call('ZRANGEBYLEX', order, '[G', '(H', 'LIMIT', 0, ${BURIED_AT_ONCE})) do
    redis.call('ZREM', order, member)
    admit(lineOf(string.sub(member, 2)))
  end
end

-- The steps -------------------------------------------------------------------------------------------------------

local somebodyWaits = false

local function place(claim)
  if holds(claim) then return 'h' .. claim.token end
  somebodyWaits = true
  return 'w'
end

local function living(id)
  local person = whole and personOf(id)
  return person and person.alive and person
end

local steps = {}

-- A new session. The first one makes the keys; what a damaged shard still has belongs to nobody.
steps.open = function(id, inbox, kind, ttl)
  if whole and personOf(id) then return canGuard and 1 or 0 end
  ttl = tonumber(ttl)
  if not whole then
    local damaged = redis.call('EXISTS', sessions, order) > 0
    redis.call('UNLINK', sessions, order, state)
    redis.call('ZADD', order, 0, '')
    read, whole = {}, true
    if guarding and damaged then
      shard.since = nowMs
      leap(math.max(ttl, shard.longest))
    end
  end
  redis.call('ZADD', sessions, nowMs + ttl, id)
  people[id] = {
    id = id, inbox = inbox, kind = kind, ttl = ttl, count = 0, held = 0, sum = 0, evicted = 0, alive = true, dirty = true,
  }
  if ttl > shard.longest then
    shard.longest = ttl
    if guarded() then leap(ttl) end
  end
  shard.dirty = true
  return canGuard and 1 or 0
end

steps.enter = function(id, session, lineId, serial, weight, capacity, wait, note)
  local person = living(session)
  if not person then return 'g' end
  local claim = claimOf(id)
  if claim then return claim.session == session and place(claim) or 'g' end
  local line = lineOf(lineId)
  weight, capacity = tonumber(weight), tonumber(capacity)
  local function fits()
    return line.waiting == 0 and line.held + weight <= capacity and not guarded()
  end
  if not fits() or line.capacity ~= capacity then reap(line) end
  if line.held == 0 and line.waiting == 0 then line.capacity = capacity end
  if line.capacity ~= capacity then return 'm' .. line.capacity end
  local granted = fits()
  if not granted and wait == '0' then return 'r' end
  shard.last, shard.dirty = math.max(shard.last + 1, nowUs), true
  claim = {
    id = id, session = session, serial = tonumber(serial), weight = weight, token = format('%016.0f', shard.last),
    since = format('%.0f', nowMs), line = lineId, note = note,
  }
  redis.call('ZADD', order, 0, spot(claim), 0, 'S' .. session .. '\n' .. id)
  keep(claim)
  line.dirty = true
  if granted then line.held, line.frontier = line.held + weight, claim.token else line.waiting = line.waiting + 1 end
  tally(person, claim, 1, granted and 1 or 0)
  if not granted and guarded() then redis.call('ZADD', order, 0, 'G' .. lineId) end
  return place(claim)
end

steps.leave = function(id, session, lineId)
  if not whole then return 0 end
  local claim = claimOf(id)
  local ours = claim and claim.session == session
  if ours then drop(claim) end
  admit(lineOf(lineId))
  return ours and 1 or 0
end

steps.reweigh = function(id, session, weight)
  local claim = whole and claimOf(id)
  weight = tonumber(weight)
  if not claim or claim.session ~= session or weight >= claim.weight then return 0 end
  local line = lineOf(claim.line)
  if holds(claim) then
    line.held, line.dirty = line.held - claim.weight + weight, true
  end
  claim.weight = weight
  keep(claim)
  admit(line)
  return 1
end

-- Answers nothing if the session is gone; else why claims are to go (id, reason), '', and, if the roster differs from
-- the index, 'index' and that index: id, line, place.
steps.beat = function(session, count, held, sum, unsettled)
  local person = living(session)
  if not person then return 'g' end
  redis.call('ZADD', sessions, nowMs + person.ttl, session)
  tidy()
  local settled = { count = person.count, held = person.held, sum = person.sum }
  for id in string.gmatch(unsettled, '%S+') do
    local claim = claimOf(id)
    if claim and claim.session == session then
      settled.count = settled.count - 1
      settled.sum = (settled.sum - claim.serial) % 4294967296
      if holds(claim) then settled.held = settled.held - 1 end
    end
  end
  somebodyWaits = somebodyWaits or person.count > person.held
  local answer = {}
  local differs = settled.count ~= tonumber(count) or settled.held ~= tonumber(held) or settled.sum ~= tonumber(sum)
  if not differs and person.evicted == 0 then return answer end
  local index = {}
  for _, member in ipairs(redis.call('ZRANGEBYLEX', order, '[S' .. session .. '\n', '(S' .. session .. '\n\255')) do
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

-- How a claim stands: for whoever may have missed a message.
steps.look = function(id, session)
  local claim = whole and claimOf(id)
  return claim and claim.session == session and place(claim) or 'g'
end

-- Looks after what is due. Also how a session ends: its own death comes first. 1: there is more of it to bury.
steps.reap = function(session, ends)
  if not whole then return 0 end
  local person = ends == '1' and personOf(session)
  if person then
    redis.call('ZADD', sessions, 'XX', 0, session)
    person.alive = false
  end
  tidy()
  somebodyWaits = true
  return person and people[session] and 1 or 0
end

steps.evict = function(id, lineName, reason)
  local claim = whole and claimOf(id)
  local person = claim and string.sub(claim.line, 2) == lineName and living(claim.session)
  if not person then return 0 end
  if not get('e' .. id) then person.evicted, person.dirty = person.evicted + 1, true end
  put('e' .. id, reason)
  tell(person, 'evicted ' .. id .. ' ' .. reason)
  return 1
end

local arity = { open = 4, enter = 8, leave = 3, reweigh = 3, beat = 5, look = 2, reap = 2, evict = 3 }
local answers = { -1 }
local at = 4
while ARGV[at] do
  local step = ARGV[at]
  answers[#answers + 1] = steps[step](unpack(ARGV, at + 1, at + arity[step]))
  at = at + arity[step] + 1
end

-- When to look again: when the guard ends, or when the next session dies unless it beats.
if somebodyWaits and whole then
  if guarded() then
    answers[1] = shard.since + shard.longest - nowMs
  else
    local first = redis.call('ZRANGE', sessions, 0, 0, 'WITHSCORES')
    if first[2] then answers[1] = math.max(0, tonumber(first[2]) - nowMs) end
  end
end

-- What is to be written ---------------------------------------------------------------------------------------------

for id, line in pairs(lines) do
  if line.dirty then
    local used = line.held > 0 or line.waiting > 0
    put('l' .. id, used and format('%d %d %s %d', line.capacity, line.held, line.frontier, line.waiting))
  end
end
for id, person in pairs(people) do
  if person and person.dirty then
    put('s' .. id, format('%s %s %d %d %d %.0f %d',
      person.inbox, person.kind, person.ttl, person.count, person.held, person.sum, person.evicted))
  end
end
if shard.dirty then put('shard', format('%.0f %d %.0f %s', shard.last, shard.longest, shard.since, shard.run)) end

local set, del = {}, {}
for field, text in pairs(changed) do
  if text then
    set[#set + 1] = field
    set[#set + 1] = text
  else
    del[#del + 1] = field
  end
end
if #del > 0 then redis.call('HDEL', state, unpack(del)) end
if #set > 0 then redis.call('HSET', state, unpack(set)) end
if buried and redis.call('EXISTS', sessions) == 0 then redis.call('UNLINK', order) end
for _, message in ipairs(messages) do redis.pcall(unpack(message)) end
return answers
`);
