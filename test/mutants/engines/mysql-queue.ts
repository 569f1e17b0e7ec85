import type { TestedBug } from '../test-run.js';

const CONFORMANCE = 'test/conformance/mysql.test.ts';
const PROTOCOL = 'test/engines/mysql/protocol.test.ts';
const PROCEDURES = 'engines/mysql/queue/protocol.ts';
const STATEMENTS = 'engines/mysql/queue/statements.ts';

export const mysqlQueue: readonly TestedBug[] = [
  {
    name: 'a claim of nobody has its turn',
    edits: [
      { file: 'engines/mysql/queue/protocol.ts', find: 'ELSEIF v_session IS NULL THEN', replace: 'ELSEIF FALSE THEN' },
    ],
    foundBy: {
      file: 'test/engines/mysql/garbage.test.ts',
      test: 'claims of nobody in a line of ours have no turn, and go: root',
    },
  },
  {
    name: 'a claim of nobody has its turn, by plain statements',
    edits: [
      { file: 'engines/mysql/queue/statements.ts', find: 'if (session === null) {', replace: 'if (weight === null) {' },
    ],
    foundBy: {
      file: 'test/engines/mysql/garbage.test.ts',
      test: 'claims of nobody in a line of ours have no turn, and go: plain',
    },
  },
  {
    name: 'an enter does not lock its line',
    edits: [
      {
        file: PROCEDURES,
        find: 'FROM ${p}line WHERE ${LINE} FOR UPDATE;\n    IF v_capacity IS NULL THEN',
        replace: 'FROM ${p}line WHERE ${LINE};\n    IF v_capacity IS NULL THEN',
      },
    ],
    foundBy: { file: PROTOCOL, test: 'of enters that meet inside the server one is granted' },
    sample: true,
  },
  {
    name: 'a burial does not wait for a beat that is under way',
    edits: [
      {
        file: PROCEDURES,
        find: 'SELECT expires INTO v_expires FROM ${p}session WHERE id = p_session FOR UPDATE;',
        replace: 'SELECT expires INTO v_expires FROM ${p}session WHERE id = p_session;',
      },
    ],
    foundBy: { file: PROTOCOL, test: 'a session whose beat is under way is not buried' },
  },
  {
    name: 'a beat revives a session that is over and not yet buried',
    edits: [
      {
        file: PROCEDURES,
        find: 'WHERE id = p_session AND expires > ${NOW};',
        replace: 'WHERE id = p_session;',
      },
    ],
    foundBy: { file: CONFORMANCE, test: 'mysql:queue: idempotence: a session that stopped beating is gone' },
  },
  {
    name: 'a beat by plain statements revives a session that is over',
    edits: [{ file: STATEMENTS, find: 'WHERE id = ? AND expires > ${NOW}`', replace: 'WHERE id = ?`' }],
    foundBy: {
      file: CONFORMANCE,
      test: 'mysql:queue without routines: idempotence: a session that stopped beating is gone',
    },
  },
  {
    name: 'a session that is over and not yet buried may enter',
    edits: [
      {
        file: PROCEDURES,
        find: 'IF v_expires IS NULL OR v_expires <= v_now THEN',
        replace: 'IF v_expires IS NULL THEN',
      },
    ],
    foundBy: { file: CONFORMANCE, test: 'mysql:queue: idempotence: a session that stopped beating is gone' },
  },
  {
    name: 'a waiter that leaves takes its weight from what is held',
    edits: [
      {
        file: PROCEDURES,
        find: '  SET v_held = v_held - IF(v_claim_held, v_weight, 0), v_waiting = v_waiting - IF(v_claim_held, 0, 1);\n  SET v_before',
        replace: '  SET v_held = v_held - v_weight, v_waiting = v_waiting - IF(v_claim_held, 0, 1);\n  SET v_before',
      },
    ],
    foundBy: { file: CONFORMANCE, test: 'mysql:queue: idempotence: a waiting claim that left is never granted' },
  },
  {
    name: 'a leave does not ask whose claim it is',
    edits: [
      {
        file: PROCEDURES,
        find: 'WHERE session = p_session AND id = p_id;\n  IF v_token IS NULL OR v_capacity IS NULL THEN',
        replace: 'WHERE id = p_id;\n  IF v_token IS NULL OR v_capacity IS NULL THEN',
      },
    ],
    foundBy: { file: CONFORMANCE, test: 'mysql:queue: idempotence: a session can’t leave another’s claim' },
  },
  {
    name: 'a grant makes no news',
    edits: [{ file: PROCEDURES, find: 'SET held = 1, news = ${NOW} WHERE', replace: 'SET held = 1 WHERE' }],
    foundBy: { file: PROTOCOL, test: 'a waiter is told of a release long before its next beat' },
  },
  {
    name: 'a token is the clock’s alone, whatever the line has had',
    edits: [{ file: PROCEDURES, find: 'SET v_token = GREATEST(v_last + 1, v_now);', replace: 'SET v_token = v_now;' }],
    foundBy: {
      file: PROTOCOL,
      test: 'tokens never fall, neither by cleaning nor by a clock that was set back: procedures',
    },
  },
  {
    name: 'the floor is not raised when lines are cleaned away',
    edits: [
      {
        file: PROCEDURES,
        find: 'INSERT INTO ${p}floor VALUES (p_namespace, v_token) ON DUPLICATE KEY UPDATE token = GREATEST(token, v_token);',
        replace: '',
      },
    ],
    foundBy: {
      file: PROTOCOL,
      test: 'tokens never fall, neither by cleaning nor by a clock that was set back: procedures',
    },
  },
  {
    name: 'plain statements clean lines away that are in use',
    edits: [
      {
        file: STATEMENTS,
        find: 'AND held = 0 AND waiting = 0 AND touched',
        replace: 'AND touched',
      },
    ],
    foundBy: { file: PROTOCOL, test: 'a line in use is never cleaned away: plain statements' },
  },
  {
    name: 'a register that is written for ever after all is forgotten',
    edits: [
      {
        file: 'engines/mysql/registers.ts',
        find: 'kept_until = IF(${MAY_WRITE}, ${NOW} + ?, kept_until)',
        replace: 'kept_until = IF(${MAY_WRITE}, COALESCE(${NOW} + ?, kept_until), kept_until)',
      },
    ],
    foundBy: { file: CONFORMANCE, test: 'mysql:queue: registers: the last write says for how long a register is kept' },
  },
  {
    name: 'a dead session whose rows can’t be counted keeps the others from their burial',
    edits: [
      {
        file: 'engines/mysql/queue/protocol.ts',
        find: "  DECLARE CONTINUE HANDLER FOR SQLSTATE '22003' BEGIN END;\n",
        replace: '',
      },
    ],
    foundBy: { file: 'test/engines/mysql/garbage.test.ts', test: 'odd rows keep nobody from a lock of the dead: root' },
  },
];
