import { expect, test } from 'vitest';
import { checkPrimaries } from '../../../../src/engines/mysql/pinned/several-primaries.js';
import { ConfigError } from '../../../../src/index.js';

const check = (...variables: [name: string, value: string][]): Promise<void> =>
  checkPrimaries('get-lock', 'refuse', async () => variables);

test.each([
  ['a server that has neither variable'],
  ['MariaDB without a cluster', ['wsrep_on', 'OFF']],
  ['a group with one primary', ['group_replication_single_primary_mode', 'ON']],
] as [string, ...[string, string][]][])('%s has one primary', async (_what, ...variables) => {
  await expect(check(...variables)).resolves.toBeUndefined();
});

test.each([
  ['wsrep_on', 'ON'],
  ['WSREP_ON', 'on'],
  ['group_replication_single_primary_mode', 'OFF'],
] as [string, string][])('%s = %s is one of several', async (name, value) => {
  await expect(check([name, value])).rejects.toThrow(ConfigError);
});
