import assert from 'node:assert/strict';
import { ConfigError, type Lease } from '../index.js';
import { type Case, listing, registers } from './case.js';

/**
 * Names that some system somewhere takes for one another, or for a way out of its own key space: paths (ZooKeeper,
 * files), hash tags (Redis Cluster), spaces and length (Memcached, GET_LOCK), collation and padding (SQL), patterns
 * (LIKE, KEYS), escapes (URLs), normal forms, and words that are special to JavaScript.
 */
const ALIKE: readonly string[] = [
  ...['a', 'A', 'á', 'a\u0301', 'ａ', 'a\u200B', 'aa'],
  ...[' a', 'a ', 'a  ', 'a b', 'a\u00A0b', ' '],
  ...['a/b', '/a', 'a/', '//a', 'a/./b', 'a/../b', '.', '..', '../a', 'a\\b'],
  ...['{a}', '{a}b', '{a', '}a{', '{}'],
  ...['a:b', 'a::b', 'a.b', 'a,b', 'a;b', 'a-b', 'a_b', 'a|b', 'a#b', 'a&b', 'a=b', 'a+b', 'a@b'],
  ...['a%', 'a%2Fb', 'a%20b', 'a*', 'a?', '[a]', '^a', 'a$'],
  ...["a'b", 'a"b', "a''b", 'a`b', '--a', '$1', '(a)', '<a>'],
  ...['ß', 'ss', 'SS', 'ı', 'i', 'I', 'İ', '🔒', '🔑', '日本', '本日', 'ﬁ', 'fi'],
  ...['0', '00', '-0', '1e0', '1', 'null', 'undefined', 'true', 'NaN', '__proto__', 'constructor', 'toString'],
  ...['x'.repeat(512), `${'x'.repeat(511)}y`, `y${'x'.repeat(511)}`, 'x'.repeat(511), '日'.repeat(170)],
];

/** Every name is a lock of its own, and none escapes. */
export const names: readonly Case[] = [
  {
    name: 'no two names collide, and each excludes those who use the same',
    async run(stage) {
      const [a, b] = [stage.holdfast(), stage.holdfast()];
      for (const name of ALIKE) {
        const lease: Lease | undefined = await a.mutex(name).tryAcquire();
        assert.ok(lease, `${JSON.stringify(name)} is taken for another name`);
        assert.equal(lease.name, name);
      }
      for (const name of ALIKE) {
        assert.equal(await b.mutex(name).tryAcquire(), undefined, `${JSON.stringify(name)} does not exclude`);
      }
    },
  },
  {
    name: 'names come back from inspect as they went in',
    needs: listing,
    async run(stage) {
      const [a, b] = [stage.holdfast(), stage.holdfast()];
      for (const name of ALIKE) await a.mutex(name).acquire();
      const listed = (await stage.lines(b)).map(({ name }) => name);
      assert.deepEqual([...listed].sort(), [...ALIKE].sort());
      for (const name of ALIKE) assert.equal((await b.mutex(name).inspect()).claims.length, 1, JSON.stringify(name));
    },
  },
  {
    name: 'registers of names that look alike are different registers',
    needs: registers,
    async run(stage) {
      const [a, b] = [stage.holdfast(), stage.holdfast()];
      for (const name of ALIKE) await a.mutex(name).run((lease) => a.register(name).set(`value of ${name}`, lease));
      for (const name of ALIKE) assert.equal((await b.register(name).get())?.value, `value of ${name}`);
    },
  },
  {
    name: 'a name that is empty, too long, ill-formed or has control characters is refused when the lock is made',
    async run(stage) {
      const locks = stage.holdfast();
      const refused = ['', 'x'.repeat(513), '日'.repeat(171), 'a\uD800', '\uDC00a', 'a\0', 'a\n', '\u001F', 'a\u007F'];
      for (const name of refused) assert.throws(() => locks.mutex(name), ConfigError, JSON.stringify(name));
    },
  },
  {
    name: 'namespaces keep the same name apart',
    async run(stage) {
      const name = stage.name();
      const here = stage.holdfast();
      // As long as ours: keys that tell lengths apart may still forget the namespace itself.
      const there = stage.holdfast({ namespace: stage.namespace.split('').toReversed().join('') });
      const lease = await here.mutex(name).acquire();
      const other = await there.mutex(name).tryAcquire();
      assert.equal(other?.held, true);
      await lease.release();
      assert.equal(await there.mutex(name).tryAcquire(), undefined);
    },
  },
  {
    name: 'a namespace and a name do not run into each other',
    async run(stage) {
      const short = stage.holdfast({ namespace: `${stage.namespace}:a` });
      const long = stage.holdfast({ namespace: `${stage.namespace}:a:b` });
      const held = await short.mutex('b:c').acquire();
      assert.equal((await long.mutex('c').tryAcquire())?.held, true);
      assert.equal(held.held, true);
    },
  },
  {
    name: 'inspect shows its own namespace only',
    needs: listing,
    async run(stage) {
      const [here, there] = [stage.holdfast(), stage.holdfast({ namespace: `${stage.namespace}2` })];
      const [mine, theirs] = [stage.name(), stage.name()];
      await here.mutex(mine).acquire();
      await there.mutex(theirs).acquire();
      assert.deepEqual(
        (await stage.lines(here)).map(({ name }) => name),
        [mine],
      );
      assert.deepEqual(
        (await stage.lines(there)).map(({ name }) => name),
        [theirs],
      );
    },
  },
];
