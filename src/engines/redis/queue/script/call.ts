/**
 * A call that the usual steps were not enough for: it reads what enter and leave need, performs its steps one after the
 * other, and writes what they changed.
 */
import { WRITE_RECORDS } from './records.js';

/**
 * How many claims one call may remove or grant beside those that its steps are about: it blocks the whole server for so
 * long, and Lua can't pass more than some thousand words to a command.
 */
export const BUDGET = 400;

export const BEGIN_CALL = String.raw`
local S = {
  damaged = damaged, guarding = leastGuard ~= nil, inboxes = ARGV[2], nowMs = nowMs, nowUs = nowUs,
  -- What was read, and has been changed, of sessions, lines and claims; written at the end.
  people = {}, lines = {}, claims = {}, gone = {},
  budget = ${BUDGET},
  -- Members that are to be added to the order and removed from it, in this order; written before anybody reads it.
  adds = {}, removals = {}, messages = {},
}

-- How many arguments a step has, and what is answered where there is no state.
local arity = { open = 4, enter = 9, leave = 3, reweigh = 3, beat = 5, look = 2, reap = 2, evict = 3 }
local nothing = { open = '', enter = 'g', leave = 0, reweigh = 0, beat = 'g', look = 'g', reap = 0, evict = 0 }

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
`;

export const END_CALL = String.raw`
while ARGV[at] do
  local step = ARGV[at]
  local answer = nothing[step]
  if step == 'enter' or step == 'leave' then
    if read.shard then
      answer = S[step](
        ARGV[at + 1], ARGV[at + 2], ARGV[at + 3], ARGV[at + 4], ARGV[at + 5], ARGV[at + 6], ARGV[at + 7], ARGV[at + 8],
        ARGV[at + 9])
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
${WRITE_RECORDS}
-- Without sessions only the tokens matter.
if S.buried and redis.call('EXISTS', sessions) == 0 then
  -- Whoever still has claims was deleted: to take the rest away would hide it from those who come.
  if #redis.call('ZRANGEBYLEX', order, '[S', '(T', 'LIMIT', 0, 1) > 0 then return S.rare('abandon') end
  redis.call('UNLINK', order)
end
for _, message in ipairs(S.messages) do redis.pcall(unpack(message)) end
return answers
`;
