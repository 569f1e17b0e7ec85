/**
 * plain: the lock is a key with a value of its owner's, set only if it is not there, with a time to live. It is what most
 * libraries of most languages do with `SET key value NX PX ttl`, so they and we exclude each other on the same key.
 *
 * Our value is `<claim>:<token>`. The token is minted by the script that sets the key, so a lock that was freed and taken
 * again always has a larger one; a foreign holder has none.
 */
import type { SlotProtocol } from './store.js';
import { defineScript } from '../client/port.js';
import { freedChannel } from './keys.js';

/**
 * How a script mints: the server's µs, but always more than the last that is remembered (KEYS[2], which may be missing). What
 * somebody else has written there is no token, and is written over.
 */
export const MINT = String.raw`
local function remembered()
  local text = KEYS[2] and redis.pcall('GET', KEYS[2])
  local token = type(text) == 'string' and string.match(text, '^%d+$') and tonumber(text)
  return token and token < 9007199254740991 and text
end
local function mint()
  local time = redis.call('TIME')
  local token = time[1] * 1000000 + time[2]
  token = math.max(token, (remembered() or 0) + 1)
  token = string.format('%.0f', token)
  if KEYS[2] then redis.call('SET', KEYS[2], token, 'PX', ARGV[3]) end
  return token
end
`;

/** How a script tells that a lock is free. Sharded messages came with Redis 7; rights to publish may be missing. */
export const TELL = String.raw`
local function tell(channel, text, cluster)
  if channel == '' then return end
  if cluster == '1' then redis.pcall('SPUBLISH', channel, text) end
  redis.pcall('PUBLISH', channel, text)
end
`;

/** Whether a value is this owner's. */
export const OWNS = String.raw`
local function owns(value, owner)
  return type(value) == 'string' and string.sub(value, 1, #owner + 1) == owner .. ':'
end
`;

/** ARGV: owner, ttl, how long to remember the token. Answer: 1 and the token, or 0 and how long it is taken. */
const TAKE = defineScript(
  MINT +
    OWNS +
    String.raw`
local owner, ttl = ARGV[1], ARGV[2]
local value = redis.call('GET', KEYS[1])
if not value then
  local token = mint()
  redis.call('SET', KEYS[1], owner .. ':' .. token, 'PX', ttl)
  return { 1, token }
end
if not owns(value, owner) then return { 0, redis.call('PTTL', KEYS[1]) } end
redis.call('PEXPIRE', KEYS[1], ttl)
return { 1, string.sub(value, #owner + 2) }
`,
);

/** KEYS: locks. ARGV: ttl, then the owner of each. Answer: for each whether it is still its owner's. */
const KEEP = defineScript(
  OWNS +
    String.raw`
local kept = {}
for at, key in ipairs(KEYS) do
  kept[at] = owns(redis.pcall('GET', key), ARGV[at + 1]) and redis.call('PEXPIRE', key, ARGV[1]) or 0
end
return kept
`,
);

/** ARGV: owner, channel, whether it is a cluster. Answer: whether it was its owner's. */
const DROP = defineScript(
  OWNS +
    TELL +
    String.raw`
if not owns(redis.pcall('GET', KEYS[1]), ARGV[1]) then return 0 end
redis.call('DEL', KEYS[1])
tell(ARGV[2], ARGV[1], ARGV[3])
return 1
`,
);

export const plain: SlotProtocol = {
  take: TAKE,
  keep: KEEP,
  drop: DROP,
  ownerOf: (claimId) => claimId,
  channelOf: freedChannel,
  // Who is not one of us frees it without a word.
  pace: { firstMs: 5, mostMs: 100 },
  otherKind: "It holds no string. If it is a lock of Redisson's, use the strategy 'hash'.",
};
