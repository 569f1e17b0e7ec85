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
local held = redis.pcall('HMGET', fence_key, 'r', 'w')
if held.err then
  return string.find(held.err, 'WRONGTYPE', 1, true) and redis.error_reply('HOLDFAST_NO_FENCE ' .. held.err) or held
end
local read, wrote = held[1] or none, held[2] or none
local stale
if mode == 'read' then stale = token <= wrote else stale = token < wrote or token <= read end
if stale then return redis.error_reply('HOLDFAST_STALE_TOKEN ' .. (read > wrote and read or wrote)) end
`;

const REMEMBER = String.raw`
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
function preludeOf(...steps: readonly string[]): string {
  return `do ${steps.join(' ')} end ${BEHIND}`.replaceAll(/\s+/g, ' ');
}

const PRELUDE = preludeOf(JUDGE, REMEMBER);
const READING_PRELUDE = preludeOf(JUDGE);

/**
 * A script of yours with the fence's judgement before it, for clients that run scripts by themselves. It is called with
 * one key and two arguments more, before the script's own: the fence's key, the token as text of 19 digits, and
 * `write` (or `read`, for a shared lease).
 *
 *     const text = fencedScript(`return redis.call('INCR', KEYS[1])`);
 *     await redis.eval(text, 2, 'holdfast_fence:{a}', '{a}:count', `${lease.token}`.padStart(19, '0'), 'write');
 */
export function fencedScript(script: string): string {
  const first = firstLine(script);
  return `${first}${PRELUDE}${script.slice(first.length)}`;
}

/** The same for a read lease whose token the fence knows: the server refuses what writes (from Redis 7 on). */
export function readingScript(script: string): string {
  const first = firstLine(script);
  const flags = /\bflags=(\S+)/.exec(first)?.[1];
  const all = ['no-writes', ...(flags === undefined ? [] : [flags])].join(',');
  return `#!lua flags=${all}\n${READING_PRELUDE}${script.slice(first.length)}`;
}

/** Redis 7 has flags in a first line, which must stay the first. */
function firstLine(script: string): string {
  return /^#!.*\n/.exec(script)?.[0] ?? '';
}

/** The newest token, if this error is the refusal of a stale one. */
export function newestIn(error: unknown): bigint | undefined {
  const found = error instanceof Error ? /HOLDFAST_STALE_TOKEN (\d{19})/.exec(error.message) : null;
  return found ? BigInt(found[1]!) : undefined;
}
