/**
 * Who comes next: claims that fit are granted, the dead go, and what is too much for one call is left for the next. As
 * functions of R (rare.ts).
 */
import { BUDGET } from './call.js';

export const ADMISSION = String.raw`
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
    local function first() return R.range('(' .. from .. line.frontier .. '\n\255', '(' .. from .. '\255', 1)[1] end
    while line.waiting > 0 do
      if S.budget == 0 then return R.postpone(lineId) end
      local member = first() or R.sift() and first()
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
        R.tell(person, 'granted ' .. claim.id .. ' ' .. claim.token .. ' ' .. claim.nonce)
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

  -- A record of whoever it is, or nothing where somebody else has written over it. Who comes by looks after everybody, and
  -- must not fail with them.
  local function readable(recordOf, id)
    local fine, record = pcall(recordOf, id)
    return fine and record
  end

  -- Removes dead sessions and everything they had, but only so much at a time. What can't be read stays: its own lock fails by it.
  function R.bury()
    local touched = {}
    for _, id in ipairs(redis.call('ZRANGEBYSCORE', sessions, '-inf', now(), 'LIMIT', 0, 20)) do
      local most, dropped = S.budget, 0
      local index = R.range('[S' .. id .. '\n', '(S' .. id .. '\n\255', most)
      S.people[id] = readable(personOf, id)
      for _, member in ipairs(index) do
        local claim = readable(claimOf, string.sub(member, #id + 3))
        if claim and claim.session == id and readable(lineOf, claim.line) then
          drop(claim)
          touched[claim.line], dropped = lineOf(claim.line), dropped + 1
        end
      end
      S.budget = S.budget - dropped
      if dropped > 0 and #index == most then
        S.more = true
        break
      end
      redis.call('ZREM', sessions, id)
      redis.call('HDEL', state, 's' .. id)
      S.people[id], S.buried = false, true
    end
    for lineId, line in pairs(touched) do pcall(R.admit, lineId, line) end
  end

  -- Takes members out that have another score than ours: they hide ours from every range. True, so that it can be asked again.
  function R.sift()
    for _, bounds in ipairs({ { '-inf', '(0' }, { '(0', '+inf' } }) do
      for _, member in ipairs(redis.call('ZRANGEBYSCORE', order, bounds[1], bounds[2], 'LIMIT', 0, 1000)) do
        redis.call('ZREM', order, member)
      end
    end
    return true
  end

  -- What is due whoever comes by. A clock that was set back must not keep the dead alive for longer than any ttl.
  function R.tidy()
    R.sift()
    R.bury()
    local latest = now() + shard.longest
    for _, id in ipairs(redis.call('ZRANGEBYSCORE', sessions, '(' .. latest, '+inf', 'LIMIT', 0, 20)) do
      local person = readable(personOf, id)
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
      local line = readable(lineOf, lineId)
      if line then pcall(R.admit, lineId, line) end
    end
  end

  -- When to look again: when the guard ends, or when the next session dies unless it beats.
  function R.nextLook()
    if guarded() then return shard.since + shard.longest - now() end
    local first = redis.call('ZRANGE', sessions, 0, 0, 'WITHSCORES')
    return first[2] and math.max(0, tonumber(first[2]) - now()) or -1
  end
`;
