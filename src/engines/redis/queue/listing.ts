/** Looks at lines without touching them: which there are, page by page, and one of them whole. */
import type { EngineClaim, EngineLine, LineQuery, LineRef } from '../../../core/engine.js';
import { lineId, lineRef } from '../../../kit/line-id.js';
import { chunks } from '../chunks.js';
import { defineRepeatable, type RedisPort } from '../client/port.js';
import { LAYOUT } from './script/records.js';

const PAGE = 200;

/** KEYS: order. ARGV: what ids begin with, an id to begin after or '', how many. Answer: ids, in order. O(lines × log n). */
const LINES = defineRepeatable(String.raw`
local from, to, found = '[L' .. ARGV[1], '(L' .. ARGV[1] .. '\255', {}
if ARGV[2] ~= '' then from = '(L' .. ARGV[2] .. '\n\255' end
while #found < tonumber(ARGV[3]) do
  local member = redis.call('ZRANGEBYLEX', KEYS[1], from, to, 'LIMIT', 0, 1)[1]
  if not member then break end
  local id = string.match(member, '^L([^\n]*)')
  found[#found + 1] = id
  from = '(L' .. id .. '\n\255'
end
return found
`);

/**
 * KEYS: state, order. ARGV: a line's id. Answer: capacity, then for each claim id, place, weight, token, since, note. What can't be
 * read is passed over. O(claims).
 */
const VIEW = defineRepeatable(String.raw`
local line = redis.call('HGET', KEYS[1], 'l' .. ARGV[1])
local fine, capacity, _, _, frontier = pcall(struct.unpack, '${LAYOUT.line}', line)
if not fine then return {} end
local view, from = { capacity }, 'L' .. ARGV[1] .. '\n'
for _, member in ipairs(redis.call('ZRANGEBYLEX', KEYS[2], '[' .. from, '(' .. from .. '\255')) do
  local id = string.sub(member, #from + 18)
  local claim = redis.call('HGET', KEYS[1], 'c' .. id)
  local fine, _, weight, since, token, _, _, note = pcall(struct.unpack, '${LAYOUT.claim}', claim)
  if fine and string.find(token, '^%d+$') then
    for _, word in ipairs({ id, token <= frontier and 'held' or 'waiting', weight, token, since, note }) do
      view[#view + 1] = word
    end
  end
end
return view
`);

export async function* listLines(port: RedisPort, prefix: string, query: LineQuery): AsyncIterable<EngineLine> {
  const { name, prefix: begin = '' } = query;
  if (name !== undefined && !name.startsWith(begin)) return;
  for await (const line of name === undefined ? linesWith(port, prefix, begin) : ofBothKinds(name)) {
    const view = await viewLine(port, prefix, line);
    if (view) yield view;
  }
}

function ofBothKinds(name: string): LineRef[] {
  return [
    { kind: 'lock', name },
    { kind: 'semaphore', name },
  ];
}

async function* linesWith(port: RedisPort, prefix: string, begin: string): AsyncIterable<LineRef> {
  for (const line of ofBothKinds(begin)) {
    let after = '';
    for (;;) {
      const page = (await port.run(LINES, [`${prefix}order`], [lineId(line), after, `${PAGE}`])) as unknown[];
      const ids = page.map(String);
      yield* ids.map(lineRef);
      if (ids.length < PAGE) break;
      after = ids.at(-1) ?? '';
    }
  }
}

async function viewLine(port: RedisPort, prefix: string, line: LineRef): Promise<EngineLine | undefined> {
  const answer = (await port.run(VIEW, [`${prefix}state`, `${prefix}order`], [lineId(line)])) as unknown[];
  const [capacity, ...words] = answer.map(String);
  if (capacity === undefined || words.length === 0) return undefined;
  return { ...line, capacity: Number(capacity), claims: chunks(words, 6).map(viewed) };
}

function viewed([id = '', state, weight, token = '', since, note = '']: readonly string[]): EngineClaim {
  return {
    id,
    state: state === 'held' ? 'held' : 'waiting',
    weight: Number(weight),
    token: BigInt(token),
    since: Number(since),
    note,
  };
}
