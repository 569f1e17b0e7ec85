/**
 * hash: the lock as Redisson lays it out, so that services in Java and we exclude each other and wake each other.
 *
 *     <key>                              a hash with one field, <uuid>:<thread> → how often it was entered
 *     redisson_lock__channel:{<key>}     a channel: 0 when the lock was freed
 *
 * A field of ours is <instance>:<claim> and always counts 1: how often we entered is our own affair. The token is kept
 * beside the lock, where no Java service looks.
 */
import { MINT, TELL } from './plain.js';
import { defineScript } from '../client/port.js';
import type { SlotProtocol } from './store.js';

/** ARGV: owner, ttl, how long to remember the token. Answer: 1 and the token, or 0 and how long it is taken. */
const TAKE = defineScript(
  MINT +
    String.raw`
local owner, ttl = ARGV[1], ARGV[2]
local ours = redis.call('HEXISTS', KEYS[1], owner) == 1
if not ours and redis.call('EXISTS', KEYS[1]) == 1 then return { 0, redis.call('PTTL', KEYS[1]) } end
-- While it is ours nobody else has minted one.
local token = ours and remembered() or mint()
if not ours then redis.call('HSET', KEYS[1], owner, 1) end
redis.call('PEXPIRE', KEYS[1], ttl)
return { 1, token }
`,
);

/** KEYS: locks. ARGV: ttl, then the owner of each. Answer: for each whether it is still its owner's. */
const KEEP = defineScript(String.raw`
local kept = {}
for at, key in ipairs(KEYS) do
  kept[at] = redis.pcall('HEXISTS', key, ARGV[at + 1]) == 1 and redis.call('PEXPIRE', key, ARGV[1]) or 0
end
return kept
`);

/** ARGV: owner, channel, whether it is a cluster. Answer: whether it was its owner's. */
const DROP = defineScript(
  TELL +
    String.raw`
if redis.pcall('HEXISTS', KEYS[1], ARGV[1]) ~= 1 then return 0 end
redis.call('DEL', KEYS[1])
tell(ARGV[2], '0', ARGV[3])
return 1
`,
);

export const hash: SlotProtocol = {
  take: TAKE,
  keep: KEEP,
  drop: DROP,
  ownerOf: (claimId) => claimId.replace('-', ':'),
  // As Redisson does. node-redisson looks for a brace at the beginning only: its messages about `a{b}` are not heard here,
  // and ours not there.
  channelOf: (key) => (key.includes('{') ? `redisson_lock__channel:${key}` : `redisson_lock__channel:{${key}}`),
  // Everybody sends messages; asking is only for those that get lost.
  pace: { firstMs: 50, mostMs: 1_000 },
  otherKind: "It holds no hash. If it is a lock by SET NX, use the strategy 'plain'.",
};
