/**
 * The judgement of a fence, to be put before any script.
 *
 * KEYS[1] is the fence's key, ARGV[1] the token as text of 19 digits, ARGV[2] `read` or `write`; the script behind it
 * sees its own KEYS and ARGV, without these. A stale token ends it with an error that carries the newest one, so that no
 * answer of the script's own can be taken for it. O(1).
 */
const JUDGE = String.raw`
local fence_key, token, mode = KEYS[1], ARGV[1], ARGV[2]
local none = '0000000000000000000'
local held = redis.call('HMGET', fence_key, 'r', 'w')
local read, wrote = held[1] or none, held[2] or none
local stale
if mode == 'read' then stale = token <= wrote else stale = token < wrote or token <= read end
if stale then return redis.error_reply('HOLDFAST_STALE_TOKEN ' .. (read > wrote and read or wrote)) end
if mode == 'read' and token > read then redis.call('HSET', fence_key, 'r', token) end
if mode ~= 'read' and token > wrote then redis.call('HSET', fence_key, 'w', token) end
`;

/** A block of its own, so that its names are not seen by the script; the lists are made anew, because KEYS is global. */
const BEHIND = String.raw`
local function behind(list, count)
  local rest = {}
  for at = count + 1, #list do rest[at - count] = list[at] end
  return rest
end
local KEYS, ARGV = behind(KEYS, 1), behind(ARGV, 2)
`;

/** On one line, so that the line numbers of the script's errors stay as they are. */
const PRELUDE = `do ${JUDGE} end ${BEHIND}`.replaceAll(/\s+/g, ' ');

/**
 * A script of yours with the fence's judgement before it, for clients that run scripts by themselves. It is called with
 * one key and two arguments more, before the script's own: the fence's key, the token as text of 19 digits, and
 * `write` (or `read`, for a shared lease).
 *
 *     const text = fencedScript(`return redis.call('INCR', KEYS[1])`);
 *     await redis.eval(text, 2, 'holdfast_fence:{a}', '{a}:count', `${lease.token}`.padStart(19, '0'), 'write');
 */
export function fencedScript(script: string): string {
  // Redis 7 has flags in a first line, which must stay the first.
  const flags = /^#!.*\n/.exec(script)?.[0] ?? '';
  return `${flags}${PRELUDE}${script.slice(flags.length)}`;
}

/** The newest token, if this error is the refusal of a stale one. */
export function newestIn(error: unknown): bigint | undefined {
  const found = error instanceof Error ? /HOLDFAST_STALE_TOKEN (\d{19})/.exec(error.message) : null;
  return found ? BigInt(found[1]!) : undefined;
}
