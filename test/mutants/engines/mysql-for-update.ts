import type { TestedBug } from '../test-run.js';

const CONFORMANCE = 'test/conformance/mysql.test.ts';
const PINNED = 'test/engines/mysql/pinned.test.ts';
const READERS = 'test/engines/mysql/readers.test.ts';
const SWEEPER = 'test/engines/mysql/sweeper.test.ts';

export const mysqlForUpdate: readonly TestedBug[] = [
  {
    name: 'locks that exclude nobody are taken for locks',
    edits: [
      {
        file: 'engines/mysql/pinned/exclusion.ts',
        find: 'if (await proof) return;',
        replace: 'await proof;\n  if (pool) return;',
      },
    ],
    foundBy: {
      file: 'test/engines/mysql/exclusion.test.ts',
      test: 'for-update a proxy that spreads connections over two servers is refused',
    },
  },
  {
    name: 'what a pool resets when it is released is remembered all the same',
    edits: [
      {
        file: 'engines/mysql/client/connections.ts',
        find: 'return this.pool.config?.resetOnRelease !== true;',
        replace: 'return this.pool !== undefined;',
      },
      {
        file: 'engines/mysql/client/connections.ts',
        find: 'const known = owned || Object.keys(more).length === 0 ? AT_REST.get(connection) : undefined;',
        replace: 'const known = AT_REST.get(connection);',
      },
      {
        file: 'engines/mysql/client/connections.ts',
        find: 'const rest = owned ? {',
        replace: 'const rest = connection ? {',
      },
    ],
    foundBy: {
      file: 'test/engines/mysql/settings.test.ts',
      test: 'for-update: a pool that resets its connections when they are released has locks all the same',
    },
  },
  {
    name: 'a writer does not ask for readers that were writers',
    edits: [
      {
        file: 'engines/mysql/pinned/for-update.ts',
        find: "(!(await this.#find(pin, claim, { table: 'downgrade', mode: 'FOR UPDATE', patienceMs })))",
        replace: '((await this.prove(pin)) !== true)',
      },
    ],
    foundBy: { file: READERS, test: 'a downgrade lets nobody in who waited for the writer' },
  },
  {
    name: 'a downgrade ends the writer before there is a reader',
    edits: [
      {
        file: 'engines/mysql/pinned/store.ts',
        find: '    const reader = await this.#reader(claim, holding);\n',
        replace:
          '    await this.#latch.unlock(writer, name);\n    const reader = await this.#reader(claim, holding);\n',
      },
    ],
    foundBy: { file: READERS, test: 'a downgrade keeps the writer until there is a reader in its place' },
  },
  {
    name: 'a writer locks its row in share mode',
    edits: [
      {
        file: 'engines/mysql/pinned/for-update.ts',
        find: "const mode = claim.weight === ALL ? 'FOR UPDATE' : shared;",
        replace: 'const mode = shared;',
      },
    ],
    foundBy: { file: CONFORMANCE, test: 'mysql:for-update: exclusion: a try is refused while another holds' },
  },
  {
    name: 'a release leaves the transaction open',
    edits: [
      {
        file: 'engines/mysql/pinned/for-update.ts',
        find: "  async unlock(pin: Pin): Promise<void> {\n    await pin.ask('ROLLBACK', [], this.#setup.withinMs);",
        replace: "  async unlock(pin: Pin): Promise<void> {\n    await pin.ask('SELECT 1', [], this.#setup.withinMs);",
      },
    ],
    foundBy: { file: PINNED, test: 'for-update: what was released is free, though its connection is kept' },
  },
  {
    name: 'transactions lock gaps, and with them other names',
    edits: [
      {
        file: 'engines/mysql/pinned/for-update.ts',
        find: `'READ-COMMITTED'`,
        replace: `'REPEATABLE-READ'`,
      },
    ],
    foundBy: { file: PINNED, test: 'for-update: downgrades of two names do not stand in each other’s way' },
  },
  {
    name: 'nobody is told that the connection of a lock broke',
    edits: [
      {
        file: 'engines/mysql/pinned/pins.ts',
        find: '    this.#setup.onBroken(detail);\n',
        replace: '    void detail;\n',
      },
    ],
    foundBy: { file: PINNED, test: 'for-update: a killed connection is told at once, long before the ttl' },
  },
  {
    name: 'the sweeper takes the latch of a lock in use for idle',
    edits: [
      {
        file: 'engines/mysql/rows/sweeper.ts',
        find: 'AND used.until >= ${NOW} - ${IDLE_US})`',
        replace: 'AND used.until < 0)`',
      },
    ],
    foundBy: { file: SWEEPER, test: 'for-update: a lock in use is not taken for idle' },
  },
  {
    name: 'a token is the clock’s alone, whatever the name has had',
    edits: [
      {
        file: 'engines/mysql/pinned/store.ts',
        find: 'LAST_INSERT_ID(GREATEST(token + 1, ${NOW}))',
        replace: 'LAST_INSERT_ID(${NOW})',
      },
    ],
    foundBy: { file: SWEEPER, test: 'for-update: tokens do not fall when their rows are swept away' },
  },
];
