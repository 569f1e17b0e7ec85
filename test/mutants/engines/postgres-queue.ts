import type { TestedBug } from '../test-run.js';

const CONFORMANCE = 'test/conformance/postgres.test.ts';
const PROTOCOL = 'test/engines/postgres/protocol.test.ts';
const CLEANING = 'test/engines/postgres/cleaning.test.ts';
const ROUTINES = 'engines/postgres/protocol.ts';

export const postgresQueue: readonly TestedBug[] = [
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
        find: "      PERFORM pg_notify(head.inbox, 'granted ' || head.id || ' ' || head.token);\n",
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
];
