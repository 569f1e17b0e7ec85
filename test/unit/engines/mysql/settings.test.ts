import { expect, test } from 'vitest';
import { oddSettings } from '../../../../src/engines/mysql/client/settings.js';

/** As a new MySQL 8 and a new MariaDB have them. */
const MYSQL = {
  autocommit: '1',
  completion_type: 'NO_CHAIN',
  sql_mode:
    'ONLY_FULL_GROUP_BY,STRICT_TRANS_TABLES,NO_ZERO_IN_DATE,NO_ZERO_DATE,ERROR_FOR_DIVISION_BY_ZERO,NO_ENGINE_SUBSTITUTION',
  sql_select_limit: '18446744073709551615',
  sql_safe_updates: '0',
  transaction_isolation: 'REPEATABLE-READ',
  transaction_read_only: '0',
  unique_checks: '1',
  wait_timeout: '28800',
};
const { transaction_isolation, transaction_read_only, ...BOTH } = MYSQL;
const MARIADB = { ...BOTH, tx_isolation: transaction_isolation, tx_read_only: transaction_read_only };

test.each([MYSQL, MARIADB, { ...MYSQL, transaction_isolation: 'READ-COMMITTED' }, { ...MYSQL, sql_mode: '' }])(
  'a session as servers begin it needs nothing, so nothing is sent for it',
  (settings) => expect(oddSettings(settings)).toEqual({}),
);

test('what would break a lock is set, by the name that the server has for it', () => {
  expect(oddSettings({ ...MYSQL, autocommit: '0' })).toEqual({ autocommit: '1' });
  expect(oddSettings({ ...MARIADB, tx_isolation: 'SERIALIZABLE' })).toEqual({ tx_isolation: 'REPEATABLE-READ' });
  expect(oddSettings({ ...MYSQL, transaction_read_only: '1' })).toEqual({ transaction_read_only: '0' });
  expect(oddSettings({ ...MYSQL, sql_select_limit: '0' })).toEqual({ sql_select_limit: '18446744073709551615' });
});

test('a mode that nobody has heard of is not trusted', () => {
  expect(oddSettings({ ...MYSQL, sql_mode: 'STRICT_TRANS_TABLES,OF_NEXT_YEAR' })).toEqual({
    sql_mode: 'STRICT_TRANS_TABLES,NO_ENGINE_SUBSTITUTION',
  });
});
