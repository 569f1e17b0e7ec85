/** All steps but enter and leave, as functions of R (rare.ts). */
export const RARE_STEPS = String.raw`
  -- A new session. The first one makes the keys; what a damaged shard still has belongs to nobody. Answers the guard, or x if
  -- the server does not let us see its epoch.
  function R.open(id, inbox, kind, ttl)
    if personOf(id) then return guardWord() end
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
    return canGuard == false and 'x' or guardWord()
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

  -- Whether anybody listens to the inbox. A plain one may have its listener on another node, which this node can't see.
  local function heard(person)
    if string.sub(person.inbox, 1, 1) ~= 's' then return true end
    local answer = redis.pcall('PUBSUB', 'SHARDNUMSUB', S.inboxes .. string.sub(person.inbox, 2))
    return answer[2] ~= 0
  end

  -- Answers g if the session is gone; else the guard, whether its inbox is heard, why claims are to go (id, reason) and, if the
  -- roster differs from the index, '' and that index (id, line, place).
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
    local answer, index = { guardWord(), heard(person) and '1' or '0' }, {}
    if not differs and person.evicted == 0 then return answer end
    for _, member in ipairs(R.range('[S' .. session .. '\n', '(S' .. session .. '\n\255')) do
      local claim = claimOf(string.sub(member, #session + 3))
      local reason = claim and person.evicted > 0 and get('e' .. claim.id)
      if reason then
        answer[#answer + 1] = claim.id
        answer[#answer + 1] = reason
      end
      if claim then index[#index + 1] = claim end
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
    R.tell(person, 'evicted ' .. id)
    return 1
  end
`;
