import type { TestedBug } from '../test-run.js';

const CONFORMANCE = 'test/conformance/sqlite.test.ts';
const SESSIONS = 'test/engines/sqlite/sessions.test.ts';

export const sqlite: readonly TestedBug[] = [
  {
    name: 'sessions of another boot are judged by our monotonic clock',
    edits: [
      {
        file: 'engines/sqlite/protocol.ts',
        find: '    if (bootId !== host.bootId) return this.#hasFallenSilent(session);\n',
        replace: '',
      },
    ],
    foundBy: { file: SESSIONS, test: 'lives for as long as its counter moves, whatever our clock says of its time' },
    sample: true,
  },
  {
    name: 'a session of another boot is watched from the first look on, though it beats',
    edits: [
      { file: 'engines/sqlite/protocol.ts', find: 'if (watched?.beats !== beats) {', replace: 'if (!watched) {' },
    ],
    foundBy: { file: SESSIONS, test: 'lives for as long as its counter moves, whatever our clock says of its time' },
  },
  {
    name: 'a pid that is used again is taken for its first owner',
    edits: [
      {
        file: 'engines/sqlite/host.ts',
        find: 'return startTime !== other.startTime;',
        replace: 'return false;',
      },
    ],
    foundBy: { file: SESSIONS, test: 'is over at once when its pid belongs to a younger process' },
  },
  {
    name: 'pids of another namespace are looked for in ours',
    edits: [
      {
        file: 'engines/sqlite/host.ts',
        find: '  if (other.pidNamespace !== host.pidNamespace) return false;\n',
        replace: '',
      },
    ],
    foundBy: { file: SESSIONS, test: 'of another pid namespace is judged by its time, and by no pid' },
  },
  {
    name: 'a beat revives a session that is over and not yet reaped',
    edits: [
      {
        file: 'engines/sqlite/protocol.ts',
        find: 'WHERE id = ? AND boot_id = ? AND expires_ms > ?`',
        replace: 'WHERE id = ? AND boot_id = ? AND ? > 0`',
      },
    ],
    foundBy: { file: CONFORMANCE, test: 'a session that stopped beating is gone for every call' },
  },
  {
    name: 'a session that is over and not yet reaped may enter',
    edits: [
      {
        file: 'engines/sqlite/protocol.ts',
        find: 'WHERE id = ? AND expires_ms > ?`',
        replace: 'WHERE id = ? AND ? > 0`',
      },
    ],
    foundBy: { file: CONFORMANCE, test: 'a session that stopped beating is gone for every call' },
  },
  {
    name: 'commits of other connections wake nobody',
    edits: [
      {
        file: 'engines/sqlite/index.ts',
        find: 'const changed = version !== this.#seenVersion;',
        replace: 'const changed = false;',
      },
    ],
    foundBy: { file: SESSIONS, test: 'a waiter is told of a release on another connection long before its next beat' },
  },
  {
    name: 'a waiter that leaves takes its weight from what is held',
    edits: [
      {
        file: 'engines/sqlite/protocol.ts',
        find: 'this.#changeLine(claim, claim.held ? -claim.weight : 0, claim.held ? 0 : -1)',
        replace: 'this.#changeLine(claim, -claim.weight, claim.held ? 0 : -1)',
      },
    ],
    foundBy: { file: CONFORMANCE, test: 'a waiting claim that left is never granted, and those behind it move up' },
  },
  {
    name: 'a token is the clock’s alone, and repeats within a millisecond',
    edits: [
      {
        file: 'engines/sqlite/protocol.ts',
        find: 'SET last_token = max(last_token + 1, ?)',
        replace: 'SET last_token = ?',
      },
    ],
    foundBy: { file: CONFORMANCE, test: 'tokens of tries grow as well' },
  },
  {
    name: 'a register is forgotten as soon as another is written',
    edits: [{ file: 'engines/sqlite/writer-thread.ts', find: 'null : now + task.keepMs', replace: 'null : now' }],
    foundBy: { file: CONFORMANCE, test: 'what is written for a time is there until then' },
  },
];
