import type { TestedBug } from '../test-run.js';

const CONFORMANCE = 'test/conformance/mysql.test.ts';
const PINNED = 'test/engines/mysql/pinned.test.ts';
const FILE = 'engines/mysql/pinned/get-lock.ts';

export const mysqlGetLock: readonly TestedBug[] = [
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
        find: "pin.proves('SELECT IS_USED_LOCK(?) = CONNECTION_ID()', [this.#lockName(name)], this.#setup.withinMs)",
        replace: "pin.proves(name && 'SELECT 1', [], this.#setup.withinMs)",
      },
    ],
    foundBy: { file: PINNED, test: 'get-lock: a lock that is not on its connection any more is lost' },
    sample: true,
  },
  {
    name: 'a connection goes back to the pool with its lock',
    edits: [{ file: FILE, find: "'DO RELEASE_LOCK(?)'", replace: "'DO LENGTH(?)'" }],
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
        file: 'engines/mysql/pinned/engine.ts',
        find: "if (holding.token !== undefined) this.#setup.lost(id, { reason: 'connection', detail });",
        replace: 'void detail;',
      },
    ],
    foundBy: { file: PINNED, test: 'get-lock: a killed connection is told at once, long before the ttl' },
  },
  {
    name: 'a wait that was given up goes on inside the server',
    edits: [
      {
        file: 'engines/mysql/pinned/engine.ts',
        find: '      await holding.taking?.catch(() => {});\n',
        replace: '',
      },
    ],
    foundBy: {
      file: 'test/engines/mysql/locks.test.ts',
      test: 'get-lock: a wait that was given up is over before we ask again',
    },
  },
];
