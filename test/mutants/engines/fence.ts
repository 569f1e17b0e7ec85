import type { TestedBug } from '../test-run.js';

const sql = 'test/system/fence/sql.test.ts';
const transaction = 'test/system/fence/transaction.test.ts';
const redis = 'test/system/fence/redis.test.ts';
const http = 'test/system/fence/http.test.ts';
const edges = 'test/system/fence/http-edges.test.ts';

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
    edits: [{ file: 'fence/sql.ts', find: "return 'for now';", replace: "return 'for good';" }],
    foundBy: { file: sql, test: 'postgres PostgreSQL: it is made in the transaction' },
  },
  {
    name: 'PostgreSQL: the table is made in the transaction, and everybody else waits for that',
    edits: [
      {
        file: 'fence/sql.ts',
        find: 'await this.#port.beside?.().catch(() => undefined);',
        replace: 'await Promise.resolve<Awaited<ReturnType<NonNullable<SqlPort["beside"]>>> | undefined>(undefined);',
      },
    ],
    foundBy: { file: sql, test: 'postgres PostgreSQL: a table that is made on the way keeps nobody waiting' },
  },
  {
    name: 'MySQL: an open that changes nothing is no write',
    edits: [{ file: 'fence/table.ts', find: "'opened = opened + 1'", replace: "'opened = opened'" }],
    foundBy: { file: sql, test: 'mysql every open is a write' },
  },
  {
    name: 'several fences are opened in the order that each gives',
    edits: [{ file: 'fence/presented.ts', find: '(a < b ? -1 : 1)', replace: '(a < b ? 0 : 0)' }],
    foundBy: { file: sql, test: 'those that one call opens are opened in one order' },
  },
  {
    name: 'PostgreSQL: a transaction that failed counts as committed',
    edits: [{ file: 'sql/pg.ts', find: "if (command === 'ROLLBACK')", replace: "if (command === 'NEVER')" }],
    foundBy: { file: transaction, test: 'postgres that failed inside of its function is an error' },
  },
  {
    name: 'MySQL: a COMMIT without an answer is told as an error of the client',
    edits: [
      {
        file: 'sql/mysql2.ts',
        find: 'throw isVerdict(error) ? error : unanswered(error)',
        replace: 'throw isVerdict(error) ? unanswered(error) : error',
      },
    ],
    foundBy: { file: transaction, test: 'mysql a COMMIT without an answer is told as that' },
  },
  {
    name: 'transactions on one connection run into each other',
    edits: [{ file: 'fence/transaction.ts', find: 'lastTurns.get(db) ?? Promise', replace: 'Promise' }],
    foundBy: { file: transaction, test: 'sqlite of two, the second waits for the first' },
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
    name: 'Redis: a script of a read lease may write',
    edits: [{ file: 'fence/lua.ts', find: "const all = ['no-writes', ", replace: "const all = ['allow-stale', " }],
    foundBy: { file: redis, test: 'ioredis a script of a read lease can’t write' },
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
      {
        file: 'fence/gate.ts',
        find: 'if (fits(place.inside, fence)) place',
        replace: 'if (fits(place.inside, fence) || withinMs > 0) place',
      },
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
        find: `      raise(place, resource, fence);
      if (fits`,
        replace: `      if (fits`,
      },
      {
        file: 'fence/gate.ts',
        find: `    } catch (error) {
      this.#tidy`,
        replace: `      raise(place, resource, fence);
    } catch (error) {
      this.#tidy`,
      },
    ],
    foundBy: {
      file: http,
      test: 'fetch handler a newer holder waits until an older request that is at work has ended',
    },
  },
  {
    name: 'HTTP: a writer is let in beside readers',
    edits: [
      {
        file: 'fence/gate.ts',
        find: "(one.mode === 'read' && fence.mode === 'read')",
        replace: "(one.mode === 'read' || fence.mode === 'read')",
      },
    ],
    foundBy: { file: http, test: 'fetch handler a writer waits for the readers that are at work' },
  },
  {
    name: 'HTTP: who was overtaken while it waited is let in',
    edits: [
      {
        file: 'fence/gate.ts',
        find: 'for (const waiter of place.waiting) waiter.refuse(stale(place, resource, waiter));',
        replace: '',
      },
    ],
    foundBy: { file: http, test: 'fetch handler who is overtaken while it waits is refused' },
  },
  {
    name: 'HTTP: those who wait wake each other, and nothing else runs',
    edits: [
      {
        file: 'fence/gate.ts',
        find: '      else await turn(place, resource, visit, withinMs);',
        replace: `      else {
        const end = performance.now() + withinMs;
        while (!fits(place.inside, fence)) {
          if (performance.now() > end) await turn(place, resource, visit, 0);
          await Promise.resolve();
        }
        place.inside.add(visit);
      }`,
      },
    ],
    foundBy: { file: edges, test: 'two requests of one holder that wait for an older one stop nothing and nobody' },
  },
  {
    name: 'HTTP: a closed response keeps its resource',
    edits: [
      { file: 'fence/at-work.ts', find: "  response.once('close', gone);\n", replace: '' },
      { file: 'fence/at-work.ts', find: '  if (socket) whenClosed', replace: '  if (!gone) whenClosed' },
    ],
    foundBy: { file: edges, test: 'the next holder is let in when the client of res.sendFile has gone' },
  },
  {
    name: 'HTTP: a client that goes away ends its request for the fence',
    edits: [
      {
        file: 'fence/at-work.ts',
        find: "else setTimeout(() => over(undefined, 'whole'), unansweredMs).unref();",
        replace: "else over(undefined, 'whole');",
      },
    ],
    foundBy: {
      file: http,
      test: 'express who waits too long is told to come again, and who goes meanwhile lets nobody in early',
    },
  },
  {
    name: 'HTTP: what a handler holds does not keep it at work',
    edits: [{ file: 'fence/at-work.ts', find: '    this.#unsettled += 1;\n', replace: '' }],
    foundBy: { file: edges, test: 'hold keeps a request at work though its client has gone' },
  },
  {
    name: 'HTTP: a place is taken by whoever comes',
    edits: [{ file: 'fence/gate.ts', find: '    if (!place.isKept) return;\n', replace: '' }],
    foundBy: { file: edges, test: 'is nothing of requests that were refused, however many paths are made up' },
  },
  {
    name: 'HTTP: a write that broke is forgotten, and an older one passes',
    edits: [
      { file: 'fence/at-work.ts', find: 'return !/^(get|head|options)$/i.test', replace: 'return !/^[a-z]*$/i.test' },
    ],
    foundBy: { file: edges, test: 'is what may have worked: PUT /500' },
  },
  {
    name: 'HTTP: nonsense in a refusal is read as tokens',
    edits: [{ file: 'fence/header.ts', find: '!/^[0-9]{1,19}$/.test(text)', replace: 'text.length > 19' }],
    foundBy: { file: edges, test: 'a service that refuses with a token of letters gives an error of ours' },
  },
  {
    name: 'HTTP: a handler that throws is at work for ever',
    edits: [
      {
        file: 'fence/http.ts',
        find: `        atWork.answered(this.#mayHaveWorked(request, response?.status));
        throw error;`,
        replace: `        throw error;`,
      },
    ],
    foundBy: { file: http, test: 'a handler that throws is no longer at work' },
  },
  {
    name: 'HTTP: an answer that is still produced is over',
    edits: [{ file: 'fence/at-work.ts', find: 'if (!isStream) {', replace: 'if (isStream || !isStream) {' }],
    foundBy: { file: edges, test: 'is a part of the handler: newer holders come after its last write' },
  },
  {
    name: 'HTTP: an answer that nobody reads keeps its resource',
    edits: [{ file: 'fence/at-work.ts', find: '    this.#body?.cutOffAfter(cutOffMs);\n', replace: '' }],
    foundBy: { file: edges, test: 'that nobody reads is cut off when a newer one waits' },
  },
  {
    name: 'HTTP: who was answered by another while it waited is let in',
    edits: [{ file: 'fence/at-work.ts', find: '|| writableEnded === true ', replace: '' }],
    foundBy: { file: edges, test: 'lets the next one in, and its handler does not run' },
  },
  {
    name: 'HTTP: a request that the store refuses is at work for ever',
    edits: [
      {
        file: 'fence/http.ts',
        find: `      leave(false);
      throw error;`,
        replace: `      throw error;`,
      },
    ],
    foundBy: { file: http, test: 'a store keeps tokens beyond the process, and its refusals are told' },
  },
];
