import type { EngineBug } from '../test-run.js';

export const redisPlain: readonly EngineBug[] = [
  {
    name: 'a token is the clock’s alone, whatever was remembered',
    edits: [
      {
        file: 'engines/redis/plain.ts',
        find: "  if KEYS[2] then token = math.max(token, (redis.call('GET', KEYS[2]) or 0) + 1) end",
        replace: '',
      },
    ],
    foundBy: { file: 'test/engines/redis/plain.test.ts', test: 'tokens grow when the clock of the server is set back' },
  },
];
