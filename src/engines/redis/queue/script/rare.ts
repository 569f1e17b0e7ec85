/**
 * What is rare, in one table `R` that is made when a call first asks for something of it: most calls do without. The other
 * parts reach it by name, with S.rare.
 */
import { ADMISSION } from './admission.js';
import { RARE_STEPS } from './rare-steps.js';
import { LAYOUT } from './records.js';

export const RARE = String.raw`
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

  -- One of the keys turned out to be missing. Everything but the tokens goes, and everybody hears that it is gone.
  function R.abandon()
    R.leap(shard.longest)
    redis.call('UNLINK', sessions, order, state)
    redis.call('HSET', state, 'shard', struct.pack('${LAYOUT.shard}', shard.last, shard.longest, now()) .. shard.epoch)
    local all, from = { -1 }, 3
    while ARGV[from] do
      all[#all + 1] = nothing[ARGV[from]]
      from = from + arity[ARGV[from]] + 1
    end
    return all
  end

${ADMISSION}${RARE_STEPS}
  return R
end
`;
