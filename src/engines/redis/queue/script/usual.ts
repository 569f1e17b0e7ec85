/**
 * The usual steps: an enter into a line without claims, and a leave that nobody waits for. They need nothing of the other
 * parts, and making those (Lua makes functions and tables anew with every call) would cost three times as much as these
 * steps do. So this is straight code, and says a second time what line.ts says. The first step that is not one of them
 * ends this part; nothing of that step has been written then.
 */
import { LAYOUT } from './records.js';

/** Begins with what all parts share. */
export const USUAL = String.raw`
local sessions, state, order = KEYS[1], KEYS[2], KEYS[3]
local answers, at = { -1 }, 3
local nowMs, nowUs, epoch, canGuard, damaged
-- How long the guard lasts at least; nil: there is none.
local leastGuard = ARGV[1] ~= '0' and tonumber(ARGV[1]) or nil

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
  local last, longest, since, knownEpoch
  local entered, changed = false, false

  while ARGV[at] == 'enter' or ARGV[at] == 'leave' do
    local id, lineId, claimText, lineText = ARGV[at + 1], ARGV[at + 3], nil, nil
    local claimField, lineField = 'c' .. id, 'l' .. lineId
    if not session then
      local texts = redis.call('HMGET', state, claimField, lineField, 'shard', 's' .. ARGV[at + 2])
      if not texts[3] or not texts[4] then break end
      session, claimText, lineText = ARGV[at + 2], texts[1], texts[2]
      local epochFrom, inboxFrom
      last, longest, since, epochFrom = struct.unpack('${LAYOUT.shard}', texts[3])
      longest = math.max(longest, leastGuard or 0)
      knownEpoch = string.sub(texts[3], epochFrom)
      ttl, dies, count, held, sum, evicted, inboxFrom = struct.unpack('${LAYOUT.session}', texts[4])
      inbox = string.sub(texts[4], inboxFrom)
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
        if leastGuard then findEpoch() end
      end
      if dies <= nowMs or (leastGuard and (epoch ~= knownEpoch or nowMs < since + longest)) then break end
      last = math.max(last + 1, nowUs)
      local token = string.format('%016d', last)
      local spot = 'L' .. lineId .. '\n' .. token .. '\n' .. id
      if redis.call('ZADD', order, '0', spot, '0', 'S' .. session .. '\n' .. id) ~= 2 then damaged = true break end
      redis.call('HSET', state,
        claimField, struct.pack('${LAYOUT.claim}', serial, weight, nowMs, token,
          #session, session, #lineId, lineId, #note, note),
        lineField, struct.pack('${LAYOUT.line}', capacity, weight, 0, token))
      count, held, sum, entered = count + 1, held + 1, sum + serial, true
      answers[#answers + 1] = 'h' .. token
      at = at + 10
    else
      if not claimText or not lineText or evicted > 0 then break end
      local serial, weight, _, token, owner, name = struct.unpack('${LAYOUT.claimHead}', claimText)
      local capacity, lineHeld, waiting, frontier = struct.unpack('${LAYOUT.line}', lineText)
      if owner ~= session or name ~= lineId or waiting > 0 then break end
      local spot = 'L' .. lineId .. '\n' .. token .. '\n' .. id
      if redis.call('ZREM', order, spot, 'S' .. session .. '\n' .. id) ~= 2 then damaged = true break end
      if lineHeld > weight then
        redis.call('HDEL', state, claimField)
        redis.call('HSET', state, lineField, struct.pack('${LAYOUT.line}', capacity, lineHeld - weight, 0, frontier))
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
    local person = struct.pack('${LAYOUT.session}', ttl, dies, count, held, sum % 4294967296, evicted) .. inbox
    if entered then
      redis.call('HSET', state, 's' .. session, person, 'shard', struct.pack('${LAYOUT.shard}', last, longest, since) .. knownEpoch)
    else
      redis.call('HSET', state, 's' .. session, person)
    end
  end
end
if not ARGV[at] and not damaged then return answers end
`;
