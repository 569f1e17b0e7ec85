import type { TestedBug } from '../test-run.js';

const SCRIPTS = 'engines/redis/slots/hash.ts';
const HASH = 'test/engines/redis/hash.test.ts';
const OWNERS = 'test/engines/redis/slot-owners.test.ts';

export const redisHash: readonly TestedBug[] = [
  {
    name: 'a release does not ask whose lock it is',
    edits: [{ file: SCRIPTS, find: "if redis.pcall('HEXISTS', KEYS[1], ARGV[1]) ~= 1 then return 0 end", replace: '' }],
    foundBy: { file: OWNERS, test: 'hash: a lock of claim 1 is not taken, renewed or freed by claim 2' },
  },
  {
    name: 'a renewal does not ask whose lock it is',
    edits: [
      { file: SCRIPTS, find: "redis.pcall('HEXISTS', key, ARGV[at + 1])", replace: "redis.pcall('EXISTS', key)" },
    ],
    foundBy: { file: OWNERS, test: 'hash: a lock of claim 1 is not taken, renewed or freed by claim 2' },
  },
  {
    name: 'a lock that a Java service holds is taken beside it',
    edits: [
      { file: SCRIPTS, find: "if not ours and redis.call('EXISTS', KEYS[1]) == 1 then", replace: 'if false then' },
    ],
    foundBy: { file: HASH, test: 'node-redisson is excluded by us, and we by it' },
  },
  {
    name: 'a claim that asks again is counted again',
    edits: [
      {
        file: SCRIPTS,
        find: "if not ours then redis.call('HSET', KEYS[1], owner, 1) end",
        replace: "redis.call('HINCRBY', KEYS[1], owner, 1)",
      },
    ],
    foundBy: { file: OWNERS, test: 'hash: a lock that is asked for again is the same one, and renewed' },
  },
  {
    name: 'a claim that asks again is given another token',
    edits: [{ file: SCRIPTS, find: 'ours and remembered() or mint()', replace: 'mint()' }],
    foundBy: { file: OWNERS, test: 'hash: a lock that is asked for again is the same one, and renewed' },
  },
  {
    name: 'a lock has no end',
    edits: [{ file: SCRIPTS, find: "redis.call('PEXPIRE', KEYS[1], ttl)\n", replace: '' }],
    foundBy: { file: OWNERS, test: 'hash: a lock ends by itself if nobody renews it' },
  },
  {
    name: 'a release says who, which no Java service understands',
    edits: [{ file: SCRIPTS, find: "tell(ARGV[2], '0', ARGV[3])", replace: 'tell(ARGV[2], ARGV[1], ARGV[3])' }],
    foundBy: { file: HASH, test: 'is told on Redisson’s channel redisson_lock__channel:{plain}' },
  },
  {
    name: 'the channel of a key with a brace is not Redisson’s',
    edits: [{ file: SCRIPTS, find: "key.includes('{') ? ", replace: "key.startsWith('{') ? " }],
    foundBy: { file: HASH, test: 'a release of orders{eu} is told on Redisson’s channel' },
  },
];
