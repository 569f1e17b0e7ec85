/**
 * The records of the state: how each of them is laid out, and how one is read as a table and written. Two others know the
 * layouts: usual.ts, which has no time for tables, and listing.ts.
 */

const CLAIM_HEAD = '<dddc16I4c0I4c0';

/**
 * What struct packs and unpacks. The fields of each are in protocol.ts, in this order:
 *
 *     d       a number
 *     c16     a token, in 16 digits
 *     I4c0    a text behind its length: pack takes both, unpack gives the text
 *
 * A shard, a session and a claim end in a text without a length: unpack also says where it begins.
 */
export const LAYOUT = {
  shard: '<ddd',
  session: '<dddddd',
  line: '<dddc16',
  claim: `${CLAIM_HEAD}I4c0`,
  /** A claim without its note. */
  claimHead: CLAIM_HEAD,
} as const;

/** Each is read once in a call, as a table, and `dirty` when it has been changed. */
export const READ_RECORDS = String.raw`
local shard = { last = 0, longest = 0, since = 0, epoch = '' }
if read.shard then
  local epochFrom
  shard.last, shard.longest, shard.since, epochFrom = struct.unpack('${LAYOUT.shard}', read.shard)
  shard.epoch = string.sub(read.shard, epochFrom)
end
shard.longest = math.max(shard.longest, leastGuard or 0)

local function personOf(id)
  local person = S.people[id]
  if person == nil then
    person = false
    local text = get('s' .. id)
    if text then
      local ttl, dies, count, held, sum, evicted, inboxFrom = struct.unpack('${LAYOUT.session}', text)
      person = {
        id = id, ttl = ttl, dies = dies, count = count, held = held, sum = sum, evicted = evicted,
        inbox = string.sub(text, inboxFrom),
      }
    end
    S.people[id] = person
  end
  return person
end

local function lineOf(id)
  local line = S.lines[id]
  if not line then
    line = { capacity = false, held = 0, waiting = 0, frontier = '0000000000000000' }
    local text = get('l' .. id)
    if text then line.capacity, line.held, line.waiting, line.frontier = struct.unpack('${LAYOUT.line}', text) end
    S.lines[id] = line
  end
  return line
end

local function claimOf(id)
  local claim = S.claims[id]
  if claim == nil then
    claim = false
    local text = get('c' .. id)
    if text then
      local nonceFrom
      claim = { id = id }
      claim.serial, claim.weight, claim.since, claim.token, claim.session, claim.line, claim.note, nonceFrom =
        struct.unpack('${LAYOUT.claim}', text)
      claim.nonce = string.sub(text, nonceFrom)
    end
    S.claims[id] = claim
  end
  return claim
end
`;

/** At the end of a call. */
export const WRITE_RECORDS = String.raw`
local set, del = {}, {}
for id in pairs(S.gone) do del[#del + 1] = 'c' .. id end
for id, claim in pairs(S.claims) do
  if claim and claim.dirty then
    set[#set + 1] = 'c' .. id
    set[#set + 1] = struct.pack('${LAYOUT.claim}', claim.serial, claim.weight, claim.since, claim.token,
      #claim.session, claim.session, #claim.line, claim.line, #claim.note, claim.note) .. claim.nonce
  end
end
for id, line in pairs(S.lines) do
  if line.dirty and line.held == 0 and line.waiting == 0 then
    del[#del + 1] = 'l' .. id
  elseif line.dirty then
    set[#set + 1] = 'l' .. id
    set[#set + 1] = struct.pack('${LAYOUT.line}', line.capacity, line.held, line.waiting, line.frontier)
  end
end
for id, person in pairs(S.people) do
  if person and person.dirty then
    set[#set + 1] = 's' .. id
    set[#set + 1] = struct.pack('${LAYOUT.session}', person.ttl, person.dies, person.count, person.held, person.sum,
      person.evicted) .. person.inbox
  end
end
if shard.dirty then
  set[#set + 1] = 'shard'
  set[#set + 1] = struct.pack('${LAYOUT.shard}', shard.last, shard.longest, shard.since) .. shard.epoch
end
if #del > 0 then redis.call('HDEL', state, unpack(del)) end
if #set > 0 then redis.call('HSET', state, unpack(set)) end
`;
