import type { TestedBug } from '../test-run.js';

const CONFORMANCE = 'test/conformance/mysql.test.ts';
const PINNED = 'test/engines/mysql/pinned.test.ts';
const FILE = 'engines/mysql/pinned/get-lock.ts';

export const mysqlGetLock: readonly TestedBug[] = [
  {
    name: 'a lock on a server that became read-only is believed',
    edits: [{ file: 'engines/mysql/pinned/pins.ts', find: '      this.mustBeWritable(row?.[1]);\n', replace: '' }],
    foundBy: { file: PINNED, test: 'get-lock: a lock on a server that became read-only is lost with the next beat' },
  },
  {
    name: 'a lock is not proven when its token has been minted',
    edits: [
      {
        file: FILE,
        find: "    if (Number(row?.[1]) !== 1) throw new EngineError('The lock was lost before it was granted.');\n",
        replace: '',
      },
    ],
    foundBy: { file: PINNED, test: 'get-lock: a lock that was lost before its token was minted is not granted' },
  },
  {
    name: 'a connection that answers is taken for a proof of its lock',
    edits: [
      {
        file: FILE,
        find: 'pin.proves(IS_OURS, [this.#lockName(name)], this.#setup.withinMs)',
        replace: "pin.proves(name && '1', [], this.#setup.withinMs)",
      },
    ],
    foundBy: { file: PINNED, test: 'get-lock: a lock that is not on its connection any more is lost' },
  },
  {
    name: 'a connection goes back to the pool with its lock',
    edits: [{ file: FILE, find: "'SELECT RELEASE_LOCK(?) AS freed'", replace: "'SELECT LENGTH(?) AS freed'" }],
    foundBy: { file: PINNED, test: 'get-lock: what was released is free, though its connection is kept' },
  },
  {
    name: 'a lock’s name does not tell namespaces apart',
    edits: [
      {
        file: FILE,
        find: '.update(`${namespace.length}:`).update(namespace).update(name)',
        replace: '.update(`${namespace.length}:`).update(name)',
      },
    ],
    foundBy: { file: CONFORMANCE, test: 'mysql:get-lock: names: namespaces keep the same name apart' },
  },
  {
    name: 'nobody is told that the connection of a lock broke',
    edits: [
      {
        file: 'engines/mysql/pinned/store.ts',
        find: "if (holding.token !== undefined) this.#setup.lost(id, { reason: 'connection', detail });",
        replace: 'void detail;',
      },
    ],
    foundBy: { file: PINNED, test: 'get-lock: a killed connection is told at once, long before the ttl' },
  },
  {
    name: 'a wait that was given up goes on inside the server',
    edits: [{ file: 'engines/mysql/pinned/store.ts', find: 'unordered = true;', replace: 'unordered = false;' }],
    foundBy: {
      file: 'test/engines/mysql/locks.test.ts',
      test: 'get-lock: a wait that was given up is over before we ask again',
    },
  },
  {
    name: 'what is left while it is taken is dropped twice',
    edits: [
      { file: 'kit/slot-calls.ts', find: '    if (under) return under;\n    const drop', replace: '    const drop' },
    ],
    foundBy: {
      file: 'test/unit/kit/slot-session/leave.test.ts',
      test: 'a drop is sent when the take of its claim is over, and the leave does not wait for that',
    },
  },
];
