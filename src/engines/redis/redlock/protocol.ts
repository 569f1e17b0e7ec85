/**
 * What one node of a Redlock is asked. A lock is a key with the value `<claim>:<token>`; beside it the highest token that
 * the node has ever accepted for this name (for as long as a smaller one could come).
 *
 * **Ballots.** The client proposes a token. A node accepts it if the lock is free there, if it is above every token that
 * it has accepted, and if it is close to the node's own clock. A majority of accepts for one token is the grant. Any two
 * majorities share a node, so a later grant has the larger token. A node that lost its memory can't break this: it stays
 * out for one ttl (its uptime tells), and after that whatever is close to its clock is above all it had accepted before.
 */
import { OWNS, TELL } from '../slots/plain.js';
import { defineRepeatable, defineScript } from '../client/port.js';

/**
 * ARGV: owner, token, ttl, how far the token may be from our clock (µs), how long to remember it (ms), for how long a node
 * that has just started stays out at least (ms; 0 if it does not).
 * Answer: what, a number that explains it, and the node's clock (µs).
 *   yes        accepted
 *   busy ms    somebody else holds it, for so long
 *   young ms   the node may have lost locks; it takes part again after so long
 *   low token  it has accepted this higher one
 *   clock      the token is too far from the node's clock
 */
export const VOTE = defineScript(
  OWNS +
    String.raw`
local lock, memory = KEYS[1], KEYS[2]
local owner, token, ttl, tolerance, remember, guard = ARGV[1], tonumber(ARGV[2]), ARGV[3], tonumber(ARGV[4]), ARGV[5], ARGV[6]
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local function answer(what, number)
  return { what, string.format('%.0f', number), string.format('%.0f', now) }
end

local value = redis.call('GET', lock)
if value and not owns(value, owner) then return answer('busy', redis.call('PTTL', lock)) end
if guard ~= '0' then
  local stays = math.max(tonumber(ttl), tonumber(guard))
  -- The last save is never before the start of the process, and cheaper to ask for. Seconds, of two clocks that are read
  -- at different times: it may be one too many.
  local since = redis.pcall('LASTSAVE')
  if type(since) ~= 'number' or (time[1] - since - 1) * 1000 < stays then
    local info = redis.pcall('INFO', 'server')
    local uptime = type(info) == 'string' and string.match(info, 'uptime_in_seconds:(%d+)')
    local missing = uptime and stays - (uptime - 1) * 1000 or 0
    if missing > 0 then return answer('young', missing) end
  end
end
-- What somebody else has written there is no token, and is written over.
local highest = tonumber(redis.pcall('GET', memory)) or 0
if token <= highest then return answer('low', highest) end
if math.abs(token - now) > tolerance then return answer('clock', 0) end
local text = string.format('%.0f', token)
redis.call('SET', memory, text, 'PX', remember)
redis.call('SET', lock, owner .. ':' .. text, 'PX', ttl)
return answer('yes', 0)
`,
);

/**
 * KEYS: a lock and its memory, of each. ARGV: ttl, how long to remember; then owner and token of each.
 * Answer for each: 1 renewed; 2 set again where it was missing, which repairs the node but proves nothing; 0 it is not ours.
 */
export const EXTEND = defineScript(
  OWNS +
    String.raw`
local kept = {}
for at = 1, #KEYS / 2 do
  local lock, memory, owner, token = KEYS[2 * at - 1], KEYS[2 * at], ARGV[2 * at + 1], ARGV[2 * at + 2]
  local value = redis.pcall('GET', lock)
  if owns(value, owner) then
    kept[at] = redis.call('PEXPIRE', lock, ARGV[1])
  elseif not value and (tonumber(redis.pcall('GET', memory)) or 0) <= tonumber(token) then
    redis.call('SET', memory, token, 'PX', ARGV[2])
    redis.call('SET', lock, owner .. ':' .. token, 'PX', ARGV[1])
    kept[at] = 2
  else
    kept[at] = 0
  end
end
return kept
`,
);

/**
 * ARGV: owner, channel, the highest token that is given back; none: whatever the owner has. A try that failed gives back
 * its own tokens only: a node that does not know the script yet hears of it twice, and the next try may come in between.
 * Answer: whether it was its owner's.
 */
export const FREE = defineScript(
  OWNS +
    TELL +
    String.raw`
local value = redis.pcall('GET', KEYS[1])
if not owns(value, ARGV[1]) then return 0 end
if ARGV[3] ~= '' and tonumber(string.sub(value, #ARGV[1] + 2)) > tonumber(ARGV[3]) then return 0 end
redis.call('DEL', KEYS[1])
tell(ARGV[2], ARGV[1], '0')
return 1
`,
);

/** Answer: whether the node lets us see its uptime, and its clock (µs). */
export const PROBE = defineRepeatable(String.raw`
local info = redis.pcall('INFO', 'server')
local time = redis.call('TIME')
local guarded = type(info) == 'string' and string.find(info, 'uptime_in_seconds:', 1, true)
return { guarded and 1 or 0, string.format('%.0f', time[1] * 1000000 + time[2]) }
`);
