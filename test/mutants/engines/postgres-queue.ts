import type { TestedBug } from '../test-run.js';

const CONFORMANCE = 'test/conformance/postgres.test.ts';
const PROTOCOL = 'test/engines/postgres/protocol.test.ts';
const CLEANING = 'test/engines/postgres/cleaning.test.ts';
const ROUTINES = 'engines/postgres/protocol.ts';

export const postgresQueue: readonly TestedBug[] = [
  {
    name: 'a connection with an odd setting goes back to the pool',
    edits: [
      {
        file: 'engines/postgres/engine.ts',
        find: 'return this.#database.read(this.#text(routine, args.length), args, answerOf);',
        replace: 'return answerOf(await this.#database.query(this.#text(routine, args.length), args));',
      },
    ],
    foundBy: {
      file: 'test/engines/postgres/settings.test.ts',
      test: 'a connection that the application has changed later is not used, and another one is',
    },
  },
  {
    name: 'a beat is lost with a crash where synchronous_commit is off',
    edits: [
      {
        file: ROUTINES,
        find: '  -- Whoever beats believes in its locks for as long as this says.\n  PERFORM @durable();\n',
        replace: '',
      },
    ],
    foundBy: {
      file: 'test/engines/postgres/crash.test.ts',
      test: 'a beat is as durable as a grant: after a crash there are not two holders',
    },
  },
  {
    name: 'a register is lost with a crash where synchronous_commit is off',
    edits: [
      {
        file: 'engines/postgres/registers.ts',
        find: "RETURNING ${COLUMNS}, ${names.of('durable')}()`",
        replace: 'RETURNING ${COLUMNS}`',
      },
    ],
    foundBy: {
      file: 'test/engines/postgres/crash.test.ts',
      test: 'what a register was told, and which token it was shown, outlives a crash',
    },
  },
  {
    name: 'locks of the server that do not exclude are taken for good',
    edits: [
      {
        file: 'engines/postgres/exclusion.ts',
        find: "if (got.includes(true)) throw unsound('two connections had the same lock at once');",
        replace: '',
      },
    ],
    foundBy: {
      file: 'test/engines/postgres/exclusion.test.ts',
      test: 'queue a pool that takes its connections from two servers in turn is refused',
    },
  },
  {
    name: 'a connection to a server that takes no writes goes back into the pool',
    edits: [
      {
        file: 'engines/postgres/client/errors.ts',
        find: "severity === 'ERROR' && !isReadOnly(error)",
        replace: "severity === 'ERROR'",
      },
    ],
    foundBy: {
      file: 'test/engines/postgres/switch.test.ts',
      test: 'queue the successor is found within a ttl, without tables, and the old server is left',
    },
  },
  {
    name: 'sslmode require passes over sslrootcert',
    edits: [
      {
        file: 'engines/postgres/url.ts',
        find: 'return ca ? ofAuthority : { rejectUnauthorized: false };',
        replace: 'return { rejectUnauthorized: false };',
      },
    ],
    foundBy: {
      file: 'test/engines/postgres/tls.test.ts',
      test: 'sslmode require, host localhost, root certificate of another the server is not trusted, as by psql',
    },
  },
  {
    name: 'a call does not look at the isolation of its connection',
    edits: [
      {
        file: 'engines/postgres/settings.ts',
        find: "CASE WHEN ${ISOLATION} = 'read committed' AND ${ENCODING} = 'UTF8' THEN",
        replace: 'CASE WHEN true THEN',
      },
    ],
    foundBy: {
      file: 'test/engines/postgres/settings.test.ts',
      test: 'a connection that the application has changed later is noticed, too',
    },
  },
  {
    name: 'an enter does not lock its line',
    edits: [
      {
        file: ROUTINES,
        find: "  minted bigint;\nBEGIN\n  PERFORM pg_advisory_xact_lock(hashtextextended(a_namespace || E'\\x1f' || a_line, 0));",
        replace: '  minted bigint;\nBEGIN',
      },
    ],
    foundBy: { file: PROTOCOL, test: 'of enters that meet inside the server one is granted' },
    sample: true,
  },
  {
    name: 'the dead are buried though a beat of theirs is under way',
    edits: [
      {
        file: ROUTINES,
        find: 'expires <= clock_timestamp() FOR UPDATE SKIP LOCKED\n',
        replace: 'expires <= clock_timestamp()\n',
      },
    ],
    foundBy: { file: PROTOCOL, test: 'a session whose beat is under way is not buried' },
  },
  {
    name: 'nobody is told of a grant',
    edits: [
      {
        file: ROUTINES,
        find: "      PERFORM @tell(head.inbox, 'granted ' || head.id || ' ' || head.token || coalesce(' ' || head.nonce, ''));\n",
        replace: '',
      },
    ],
    foundBy: { file: PROTOCOL, test: 'a grant is told to the channel of its session' },
  },
  {
    name: 'a beat revives a session that is over and not yet buried',
    edits: [
      {
        file: ROUTINES,
        find: 'WHERE id = a_session AND expires > clock_timestamp()\n    RETURNING namespace',
        replace: 'WHERE id = a_session\n    RETURNING namespace',
      },
    ],
    foundBy: { file: CONFORMANCE, test: 'postgres: idempotence: a session that stopped beating is gone' },
  },
  {
    name: 'a session that is over and not yet buried may enter',
    edits: [
      {
        file: ROUTINES,
        find: 'WHERE s.id = a_session AND s.expires > clock_timestamp();',
        replace: 'WHERE s.id = a_session;',
      },
    ],
    foundBy: { file: CONFORMANCE, test: 'postgres: idempotence: a session that stopped beating is gone' },
  },
  {
    name: 'a waiter that leaves takes its weight from what is held',
    edits: [
      {
        file: ROUTINES,
        find: 'held = held - CASE WHEN gone.held THEN gone.weight ELSE 0 END',
        replace: 'held = held - gone.weight',
      },
    ],
    foundBy: { file: CONFORMANCE, test: 'postgres: idempotence: a waiting claim that left is never granted' },
  },
  {
    name: 'a leave does not ask whose claim it is',
    edits: [
      {
        file: ROUTINES,
        find: 'WHERE session = a_session AND id = a_id AND namespace = a_namespace AND line = a_line\n    RETURNING',
        replace: 'WHERE id = a_id AND namespace = a_namespace AND line = a_line\n    RETURNING',
      },
    ],
    foundBy: { file: CONFORMANCE, test: 'postgres: idempotence: a session can’t leave another’s claim' },
  },
  {
    name: 'a token is the clock’s alone, whatever the line has had',
    edits: [
      {
        file: ROUTINES,
        find: 'last_token = greatest(last_token + 1, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint)',
        replace: 'last_token = (extract(epoch FROM clock_timestamp()) * 1000000)::bigint',
      },
    ],
    foundBy: { file: CLEANING, test: 'queue: tokens never fall, neither by cleaning nor by a clock that was set back' },
  },
  {
    name: 'the floor is not raised when lines are cleaned away',
    edits: [
      {
        file: ROUTINES,
        find: 'SET token = greatest(token, highest) WHERE',
        replace: 'SET token = token WHERE',
      },
    ],
    foundBy: { file: CLEANING, test: 'queue: tokens never fall, neither by cleaning nor by a clock that was set back' },
  },
  {
    name: 'lines in use are cleaned away',
    edits: [
      {
        file: ROUTINES,
        find: 'WHERE namespace = a_namespace AND held = 0 AND waiting = 0\n',
        replace: 'WHERE namespace = a_namespace\n',
      },
    ],
    foundBy: { file: CLEANING, test: 'a line in use is never cleaned away' },
  },
  {
    name: 'a register that is written for ever after all is forgotten',
    edits: [
      {
        file: 'engines/postgres/registers.ts',
        find: 'kept_until = excluded.kept_until`',
        replace: 'kept_until = coalesce(excluded.kept_until, r.kept_until)`',
      },
    ],
    foundBy: { file: CONFORMANCE, test: 'postgres: registers: the last write says for how long a register is kept' },
  },
  {
    name: 'a death that is heard of later puts off the look at an earlier one',
    edits: [{ file: 'kit/death-watch.ts', find: '    if (this.#at <= at) return;\n', replace: '' }],
    foundBy: {
      file: 'test/unit/kit/death-watch.test.ts',
      test: 'of several the earliest counts, in whatever order they are heard of',
    },
  },
  {
    name: 'a message that says that a claim is to go is believed',
    edits: [
      {
        file: 'kit/awaited.ts',
        find: "else if (message.what === 'evicted' || nonce !== undefined) this.#listener.hinted();",
        replace: "else if (message.what === 'evicted') this.evicted(message.id, '');",
      },
    ],
    foundBy: { file: 'test/engines/postgres/garbage.test.ts', test: 'that a claim was evicted is not believed' },
  },
  {
    name: 'a grant that is sent without the nonce of its claim is believed',
    edits: [{ file: 'kit/awaited.ts', find: ' && nonce && message.nonce === nonce)', replace: ' && nonce)' }],
    foundBy: {
      file: 'test/engines/postgres/garbage.test.ts',
      test: 'a grant that somebody else has sent is not believed',
    },
  },
  {
    name: 'claims that enter together are kept without their nonces',
    edits: [{ file: 'engines/postgres/protocol.ts', find: 'step.words->>8);', replace: 'NULL);' }],
    foundBy: {
      file: 'test/engines/postgres/garbage.test.ts',
      test: 'a grant is told with a nonce that only its claim has',
    },
  },
  {
    name: 'a claim that no count has is subtracted all the same',
    edits: [
      {
        file: ROUTINES,
        find: '      SELECT count(*) INTO it.waiting FROM @claim WHERE namespace = a_namespace AND line = a_line AND NOT held;\n',
        replace: '      it.waiting := it.waiting - 1;\n',
      },
    ],
    foundBy: { file: 'test/engines/postgres/garbage.test.ts', test: 'in a line let nobody pass those who wait' },
  },
  {
    name: 'a line that can’t be counted ends the sweep',
    edits: [
      { file: ROUTINES, find: 'EXCEPTION WHEN data_exception THEN', replace: 'EXCEPTION WHEN no_data_found THEN' },
    ],
    foundBy: { file: 'test/engines/postgres/garbage.test.ts', test: 'keep nobody from a lock of the dead' },
  },
];
