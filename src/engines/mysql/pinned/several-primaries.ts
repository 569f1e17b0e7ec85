/** Clusters with several primaries: of a lock of one node (`for-update`, `get-lock`) the others know nothing. */
import { ConfigError } from '../../../core/errors.js';
import { warnOnce } from '../../../kit/warn-once.js';
import { type Row, text } from '../client/port.js';
import type { SeveralPrimaries } from '../url.js';

type Ask = (sql: string) => Promise<readonly Row[]>;

/** The value that tells of several primaries. A server that does not have the variable has one. */
const SIGNS: Readonly<Record<string, string>> = { wsrep_on: 'ON', group_replication_single_primary_mode: 'OFF' };

export async function checkPrimaries(strategy: string, told: SeveralPrimaries, ask: Ask): Promise<void> {
  const names = Object.keys(SIGNS).map((name) => `'${name}'`);
  const rows = await ask(`SHOW GLOBAL VARIABLES WHERE Variable_name IN (${names.join(', ')})`);
  const sign = rows
    .map(([name, value]) => [text(name).toLowerCase(), text(value).toUpperCase()] as const)
    .find(([name, value]) => SIGNS[name] === value);
  if (!sign) return;
  const what =
    `This server is one of several primaries (${sign.join(' = ')}), and the locks of the strategy '${strategy}' are known to ` +
    'one of them only: two clients on two of them would hold the same lock.';
  if (told === 'refuse')
    throw new ConfigError(
      `${what} Use 'queue', 'row' or 'version'. If every client uses the same primary, say so: severalPrimaries=warn.`,
    );
  warnOnce(`${what} See to it that all clients use the same primary.`);
}
