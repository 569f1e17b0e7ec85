import type { TestedBug } from '../test-run.js';

const CONFORMANCE = 'test/conformance/sqlite.test.ts';
const SESSIONS = 'test/engines/sqlite/sessions.test.ts';
const BOOTS = 'test/engines/sqlite/boots.test.ts';
const SURGERY = 'test/engines/sqlite/surgery.test.ts';

export const sqlite: readonly TestedBug[] = [
  {
    name: 'claims of nobody that are in nobody’s way stay for ever',
    edits: [
      {
        file: 'engines/sqlite/census.ts',
        find: 'return this.#orphans().concat(this.#over(this.#all()));',
        replace: 'return this.#over(this.#all());',
      },
    ],
    foundBy: { file: SURGERY, test: 'claims of nobody go with the next beat of anybody' },
  },
  {
    name: 'whoever grants wakes nobody',
    edits: [{ file: 'engines/sqlite/protocol.ts', find: '      this.#told.add(next.session);\n', replace: '' }],
    foundBy: { file: 'test/engines/sqlite/doorbell.test.ts', test: 'whoever leaves wakes the next one' },
  },
  {
    name: 'sessions of another boot are judged by our monotonic clock',
    edits: [
      {
        file: 'engines/sqlite/census.ts',
        find: '  if (session.boot_id !== host.bootId || !isOfOurClock) return judgeByBeats(session, now);\n',
        replace: '',
      },
    ],
    foundBy: { file: SESSIONS, test: 'lives for as long as its counter moves, whatever our clock says of its time' },
    sample: true,
  },
  {
    name: 'a session of another boot is watched from the first look on, though it beats',
    edits: [{ file: 'engines/sqlite/census.ts', find: 'if (seenBeats !== beats || ', replace: 'if (' }],
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
        find: ' || other.pidNamespace !== us.pidNamespace',
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
        file: 'engines/sqlite/engine.ts',
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
        find: 'this.#changed(claim, claim.held ? -claim.weight : 0, claim.held ? 0 : -1)',
        replace: 'this.#changed(claim, -claim.weight, claim.held ? 0 : -1)',
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
    foundBy: { file: CONFORMANCE, test: 'the last write says for how long a register is kept' },
  },
  {
    name: 'each process watches a session of another boot for itself, from its first look on',
    edits: [
      {
        file: 'engines/sqlite/census.ts',
        find: 'this.#watch.run(session.id, host.bootId, session.beats, monotonicMs());',
        replace:
          'this.#watch.run(session.id, `${host.bootId} ${host.pid} ${this.#life}`, session.beats, monotonicMs());',
      },
      {
        file: 'engines/sqlite/census.ts',
        find: 'this.#sessions.all(host.bootId, this.#namespace)',
        replace: 'this.#sessions.all(`${host.bootId} ${host.pid} ${this.#life}`, this.#namespace)',
      },
      {
        file: 'engines/sqlite/census.ts',
        find: 'this.#inTheWay.all(this.#namespace, kind, name, host.bootId)',
        replace: 'this.#inTheWay.all(this.#namespace, kind, name, `${host.bootId} ${host.pid} ${this.#life}`)',
      },
      {
        file: 'engines/sqlite/census.ts',
        find: 'readonly #watch: Statement;',
        replace: 'readonly #watch: Statement;\n  readonly #life = Math.random();',
      },
    ],
    foundBy: { file: BOOTS, test: 'a time that lies in the future of our clock is of no use' },
  },
  {
    name: 'what one boot has seen of a session counts for every boot',
    edits: [{ file: 'engines/sqlite/census.ts', find: ' AND w.boot_id = ?', replace: ' AND ? IS NOT NULL' }],
    foundBy: { file: BOOTS, test: 'watchers of different boots do not disturb each other' },
  },
  {
    name: 'start times are taken from a /proc that is not ours',
    edits: [
      {
        file: 'engines/sqlite/host.ts',
        find: '  if (!stat.startsWith(`${pid} `)) return undefined;\n',
        replace: '',
      },
    ],
    foundBy: { file: 'test/unit/engines/sqlite/host.test.ts', test: 'a /proc that counts pids in another way' },
  },
  {
    name: 'processes are judged from where /proc is not ours',
    edits: [{ file: 'engines/sqlite/host.ts', find: '!us.startTime || ', replace: '' }],
    foundBy: { file: 'test/unit/engines/sqlite/host.test.ts', test: 'nobody is judged by pid' },
  },
  {
    name: 'a line without a row is free, whoever stands in it',
    edits: [
      {
        file: 'engines/sqlite/protocol.ts',
        find: 'this.#line(ref) ?? this.#count(ref) ?? empty',
        replace: 'this.#line(ref) ?? empty',
      },
    ],
    foundBy: { file: SURGERY, test: 'a line’s: the holder keeps its lock' },
  },
  {
    name: 'those who wait believe the numbers of their line',
    edits: [
      {
        file: 'engines/sqlite/protocol.ts',
        find: 'for (const line of this.#sql.miscounted.all(session) as unknown as LineRef[]) this.#count(line);',
        replace: '',
      },
    ],
    foundBy: { file: SURGERY, test: 'one permit’s claim: that permit is free again' },
  },
  {
    name: 'an integer that no driver can read costs everybody their beats',
    edits: [{ file: 'engines/sqlite/census.ts', find: 'CAST(s.beats AS REAL)', replace: 's.beats' }],
    foundBy: { file: SURGERY, test: 'odd rows beside ours cost nobody a beat' },
  },
  {
    name: 'a busy file after the commit repeats what was committed',
    edits: [
      {
        file: 'engines/sqlite/engine.ts',
        find: '    } catch {\n      this.#seenVersion = undefined;',
        replace: '    } catch (error) {\n      throw error;',
      },
    ],
    foundBy: { file: 'test/engines/sqlite/rollback-journal.test.ts', test: 'what was committed is not done again' },
  },
  {
    name: 'the end of a process does not wait for its thread inside SQLite',
    edits: [
      { file: 'engines/sqlite/doorway.ts', find: "if (open.size === 0) process.on('exit', shutAll);", replace: '' },
    ],
    foundBy: { file: 'test/engines/sqlite/exit.test.ts', test: 'process.exit() ends a process with its own code' },
  },
  {
    name: 'claims of nobody count',
    edits: [
      {
        file: 'engines/sqlite/protocol.ts',
        find: '${LINE} AND EXISTS (SELECT 1 FROM session WHERE session.id = claim.session)`;',
        replace: '${LINE}`;',
      },
    ],
    foundBy: {
      file: SURGERY,
      test: 'a claim of nobody gets no turn when the holder leaves before anybody has looked',
    },
  },
];
