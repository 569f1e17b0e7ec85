import type { TestedBug } from '../test-run.js';

const SCRIPTS = 'engines/redis/slots/plain.ts';
const PLAIN = 'test/engines/redis/plain.test.ts';
const OWNERS = 'test/engines/redis/slot-owners.test.ts';

export const redisPlain: readonly TestedBug[] = [
  {
    name: 'a token is the clock’s alone, whatever was remembered',
    edits: [
      {
        file: SCRIPTS,
        find: '  token = math.max(token, (remembered() or 0) + 1)',
        replace: '',
      },
    ],
    foundBy: { file: PLAIN, test: 'tokens grow when the clock of the server is set back' },
  },
  {
    name: 'a release does not ask whose lock it is',
    edits: [
      { file: SCRIPTS, find: "if not owns(redis.pcall('GET', KEYS[1]), ARGV[1]) then return 0 end", replace: '' },
    ],
    foundBy: { file: PLAIN, test: 'in place of ours is left alone by our release, which says so' },
  },
  {
    name: 'a claim owns the locks of all whose ids begin with its own',
    edits: [
      {
        file: SCRIPTS,
        find: "string.sub(value, 1, #owner + 1) == owner .. ':'",
        replace: 'string.sub(value, 1, #owner) == owner',
      },
    ],
    foundBy: { file: OWNERS, test: 'plain: a lock of claim 10 is not taken, renewed or freed by claim 1' },
  },
  {
    name: 'a renewal does not ask whose lock it is',
    edits: [
      { file: SCRIPTS, find: "owns(redis.pcall('GET', key), ARGV[at + 1]) and redis.call", replace: 'redis.call' },
    ],
    foundBy: { file: OWNERS, test: 'plain: a lock of claim 1 is not taken, renewed or freed by claim 2' },
  },
  {
    name: 'a lock has no end',
    edits: [{ file: SCRIPTS, find: "owner .. ':' .. token, 'PX', ttl)", replace: "owner .. ':' .. token)" }],
    foundBy: { file: PLAIN, test: 'has a time to live, and nothing but the last token is left of it' },
  },
  {
    name: 'a claim that asks again is given another token',
    edits: [
      {
        file: SCRIPTS,
        find: "redis.call('PEXPIRE', KEYS[1], ttl)\nreturn { 1, string.sub(value, #owner + 2) }",
        replace: "redis.call('PEXPIRE', KEYS[1], ttl)\nreturn { 1, mint() }",
      },
    ],
    foundBy: { file: OWNERS, test: 'plain: a lock that is asked for again is the same one, and renewed' },
  },
  {
    name: 'answers about many locks are counted anew with every call',
    edits: [
      {
        file: 'engines/redis/slots/store.ts',
        find: 'Number(kept[at]) !== 1',
        replace: 'Number(kept[at % KEYS_PER_CALL]) !== 1',
      },
    ],
    foundBy: { file: OWNERS, test: 'plain: a lock among many that are renewed at once' },
  },
  {
    name: 'a lock may have the key of a fence',
    edits: [{ file: 'fence/redis.ts', find: '  return `holdfast_fence:{', replace: '  return `holdfast:fence:{' }],
    foundBy: { file: 'test/unit/engines/redis/keys.test.ts', test: 'no name is a key of another kind' },
  },
  {
    name: 'a lock may have a key of the queue',
    edits: [
      { file: 'engines/redis/slots/keys.ts', find: 'looksLikeOurs(name) ?', replace: 'looksLikeOurs() ?' },
      {
        file: 'engines/redis/slots/keys.ts',
        find: 'function looksLikeOurs(name: string): boolean {\n  return OURS.test(name);',
        replace: "function looksLikeOurs(): boolean {\n  return OURS.test('');",
      },
    ],
    foundBy: { file: 'test/unit/engines/redis/keys.test.ts', test: 'no name is a key of another kind' },
  },
];
