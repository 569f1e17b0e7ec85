import type { TestedBug } from '../test-run.js';

const sql = 'test/system/fence/sql.test.ts';
const redis = 'test/system/fence/redis.test.ts';
const http = 'test/system/fence/http.test.ts';

export const fence: readonly TestedBug[] = [
  {
    name: 'PostgreSQL, SQLite: a writer with the token of a reader passes',
    edits: [
      { file: 'fence/table.ts', find: 'f.max_read < excluded.max_write', replace: 'f.max_read <= excluded.max_write' },
    ],
    foundBy: { file: sql, test: 'postgres judges readers and writers by the rule' },
  },
  {
    name: 'PostgreSQL, SQLite: a reader’s token is not recorded',
    edits: [
      {
        file: 'fence/table.ts',
        find: 'max_read = ${greatest}(f.max_read, excluded.max_read)',
        replace: 'max_read = f.max_read',
      },
    ],
    foundBy: { file: sql, test: 'sqlite judges readers and writers by the rule' },
    sample: true,
  },
  {
    name: 'PostgreSQL, SQLite: an older reader takes back what a newer one has shown',
    edits: [
      {
        file: 'fence/table.ts',
        find: 'max_read = ${greatest}(f.max_read, excluded.max_read)',
        replace: 'max_read = excluded.max_read',
      },
    ],
    foundBy: { file: sql, test: 'sqlite judges readers and writers by the rule' },
  },
  {
    name: 'PostgreSQL: tokens are compared as doubles',
    edits: [{ file: 'fence/table.ts', find: "['bigint', 'greatest']", replace: "['double precision', 'greatest']" }],
    foundBy: { file: sql, test: 'postgres judges readers and writers by the rule' },
  },
  {
    name: 'PostgreSQL: the table is made without the lock of migrations',
    edits: [
      {
        file: 'fence/table.ts',
        find: "  PERFORM pg_advisory_xact_lock(hashtextextended('holdfast migration', 0));\n",
        replace: '',
      },
    ],
    foundBy: { file: sql, test: 'postgres PostgreSQL: who makes the table waits for others that migrate' },
  },
  {
    name: 'PostgreSQL: a table that was made and rolled back is believed to be there',
    edits: [{ file: 'fence/sql.ts', find: "known.set(name, 'made');", replace: "known.set(name, 'found');" }],
    foundBy: { file: sql, test: 'postgres a table that is missing' },
  },
  {
    name: 'SQLite: who comes second to make the table fails',
    edits: [
      {
        file: 'fence/table.ts',
        find: 'return `CREATE TABLE IF NOT EXISTS ${name} (',
        replace: 'return `CREATE TABLE ${name} (',
      },
    ],
    foundBy: { file: sql, test: 'sqlite many may make the table at once' },
  },
  {
    name: 'MySQL: the transaction’s snapshot tells whether a token is stale',
    edits: [{ file: 'fence/table.ts', find: 'WHERE name = UNHEX(?) FOR UPDATE', replace: 'WHERE name = UNHEX(?)' }],
    foundBy: { file: sql, test: 'mysql MySQL: a snapshot that is older than the fence does not decide' },
  },
  {
    name: 'MySQL: a stale writer takes back what a newer one has shown',
    edits: [
      {
        file: 'fence/table.ts',
        find: 'max_write = IF(max_write <= ${shown} AND max_read < ${shown}, ${shown}, max_write)',
        replace: 'max_write = IF(max_write >= ${shown} OR max_read < ${shown}, ${shown}, max_write)',
      },
    ],
    foundBy: { file: sql, test: 'mysql judges readers and writers by the rule' },
  },
  {
    name: 'a fence opens outside of a transaction',
    edits: [{ file: 'fence/answers.ts', find: 'if (inTransaction === false)', replace: 'if (inTransaction === null)' }],
    foundBy: { file: sql, test: 'mysql outside of a transaction it is a ConfigError' },
  },
  {
    name: 'Redis: a writer is not compared with readers',
    edits: [
      {
        file: 'fence/lua.ts',
        find: 'stale = token < wrote or token <= read end',
        replace: 'stale = token < wrote end',
      },
    ],
    foundBy: { file: redis, test: 'ioredis judges readers and writers by the rule, beyond 2^53' },
  },
  {
    name: 'Redis: tokens are compared as numbers of 53 bits',
    edits: [
      {
        file: 'fence/lua.ts',
        find: "if mode == 'read' then stale",
        replace: "token, read, wrote = tonumber(token), tonumber(read), tonumber(wrote)\nif mode == 'read' then stale",
      },
    ],
    foundBy: { file: redis, test: 'ioredis judges readers and writers by the rule, beyond 2^53' },
  },
  {
    name: 'Redis: ten is older than nine',
    edits: [
      {
        file: 'fence/redis.ts',
        find: "return token.toString().padStart(19, '0');",
        replace: 'return token.toString();',
      },
      { file: 'fence/lua.ts', find: 'HOLDFAST_STALE_TOKEN (\\d{19})', replace: 'HOLDFAST_STALE_TOKEN (\\d+)' },
    ],
    foundBy: { file: redis, test: 'ioredis judges readers and writers by the rule, from one digit to two' },
  },
  {
    name: 'Redis: an overtaken holder may read',
    edits: [
      {
        file: 'fence/redis.ts',
        find: "const GET = defineScript(fencedScript(`return redis.call('GET', KEYS[1])`));",
        replace: "const GET = defineScript(`return redis.call('GET', KEYS[2])`);",
      },
    ],
    foundBy: { file: redis, test: 'ioredis an overtaken holder can neither read nor write, nor run a script' },
  },
  {
    name: 'HTTP: a reader’s token is not recorded',
    edits: [
      { file: 'fence/gate.ts', find: 'else if (fence.token > maxRead) place.maxRead = fence.token;', replace: '' },
    ],
    foundBy: { file: http, test: 'fetch handler a writer that a reader has overtaken is refused' },
  },
  {
    name: 'HTTP: a newer request does not wait for an older one that is at work',
    edits: [
      { file: 'fence/gate.ts', find: 'return a.token !== b.token && (', replace: 'return a.token > b.token && (' },
    ],
    foundBy: {
      file: http,
      test: 'fetch handler a newer holder waits until an older request that is at work has ended',
    },
  },
  {
    name: 'HTTP: a newer request closes the fence only once it is let in',
    edits: [
      {
        file: 'fence/gate.ts',
        find: `    raise(place, resource, fence);
    const end`,
        replace: `    const end`,
      },
      {
        file: 'fence/gate.ts',
        find: `      raise(place, resource, fence);
    }`,
        replace: `    }
    raise(place, resource, fence);`,
      },
    ],
    foundBy: {
      file: http,
      test: 'fetch handler a newer holder waits until an older request that is at work has ended',
    },
  },
  {
    name: 'HTTP: a writer is let in beside readers',
    edits: [{ file: 'fence/gate.ts', find: "(a.mode === 'write' || b.mode", replace: "(a.mode === 'write' && b.mode" }],
    foundBy: { file: http, test: 'fetch handler a writer waits for the readers that are at work' },
  },
  {
    name: 'HTTP: who was overtaken while it waited is let in',
    edits: [
      {
        file: 'fence/gate.ts',
        find: `      raise(place, resource, fence);
    }`,
        replace: '    }',
      },
    ],
    foundBy: { file: http, test: 'fetch handler who is overtaken while it waits is refused' },
  },
  {
    name: 'HTTP: a client that goes away ends its request for the fence',
    edits: [
      {
        file: 'fence/http.ts',
        find: `  const end = response.end.bind(response);
  response.end = (...args: Parameters<NodeResponse['end']>) => {
    then();
    return end(...args);
  };`,
        replace: `  (response as unknown as NodeJS.EventEmitter).once('close', then);`,
      },
    ],
    foundBy: {
      file: http,
      test: 'express who waits too long is told to come again, and who goes meanwhile lets nobody in early',
    },
  },
  {
    name: 'HTTP: a handler that throws is at work for ever',
    edits: [
      {
        file: 'fence/http.ts',
        find: `      try {
        return await handle(request);
      } finally {
        entered.leave();
      }`,
        replace: `      const response = await handle(request);
      entered.leave();
      return response;`,
      },
    ],
    foundBy: { file: http, test: 'a handler that throws is no longer at work' },
  },
  {
    name: 'HTTP: a request that the store refuses is at work for ever',
    edits: [
      {
        file: 'fence/http.ts',
        find: `      leave();
      throw error;`,
        replace: `      throw error;`,
      },
    ],
    foundBy: { file: http, test: 'a store keeps tokens beyond the process, and its refusals are told' },
  },
];
