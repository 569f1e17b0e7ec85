/** How a claim gets into a line in which others stand, and out of it. Other steps use the functions that come first. */
export const LINE = String.raw`
-- Whether nobody new may be granted. Notices a new epoch: asked before every grant.
local function guarded()
  if not S.guarding then return false end
  if not epoch then findEpoch() end
  if canGuard and epoch ~= shard.epoch then S.rare('beginEpoch') end
  -- A clock that was set back must not prolong it.
  if shard.since > now() then shard.since, shard.dirty = S.nowMs, true end
  return S.nowMs < shard.since + shard.longest
end

-- For how long it still lasts and how long it has lasted, in milliseconds; nothing where nobody is guarded against.
local function guardWord()
  if not guarded() then return '' end
  return string.format('%.0f:%.0f', shard.since + shard.longest - S.nowMs, S.nowMs - shard.since)
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

-- The guard, if nothing else keeps a claim of this weight out: those who wait before it do so for the same reason.
local function onlyGuard(line, weight)
  return line.held + weight <= line.capacity and guardWord() or ''
end

local function place(claim)
  local line = lineOf(claim.line)
  if claim.token <= line.frontier then return 'h' .. claim.token end
  S.somebodyWaits = true
  return 'w' .. onlyGuard(line, claim.weight)
end

-- Answers h<token> held, w waiting, r refused, a ask again, m<capacity> the line has another capacity, g the session is gone.
-- Behind w and r stands the guard, where that alone is the reason.
-- A claim that enters again keeps the nonce of its first time; one that holds at once needs none.
function S.enter(id, session, lineId, serial, weight, capacity, wait, note, nonce)
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
    if not granted and wait == '0' then return S.more and 'a' or 'r' .. onlyGuard(line, weight) end
  end
  -- It was left in this same call: its old place has to be gone before it gets a new one.
  if S.gone[id] then settle() end
  now()
  shard.last, shard.dirty = math.max(shard.last + 1, S.nowUs), true
  local token = string.format('%016d', shard.last)
  claim = {
    id = id, serial = tonumber(serial), weight = weight, since = S.nowMs, token = token,
    session = session, line = lineId, note = note, nonce = granted and '' or nonce, dirty = true,
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
`;
