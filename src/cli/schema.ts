/** `holdfast schema print` and `apply`: the tables that an engine keeps its locks in, for whoever has the rights to make them. */
import { schemaFromUrl } from '../index.js';
import { usage } from './failure.js';
import type { Listing } from './list.js';
import type { ListOptions } from './options.js';
import { engineUrl } from './place.js';

export async function schema({ operands: [action], url, json }: ListOptions): Promise<Listing> {
  if (action !== 'print' && action !== 'apply') throw usage('it is: holdfast schema print, or holdfast schema apply');
  await using tables = await schemaFromUrl(engineUrl(url, process.env));
  if (action === 'print') {
    const text = tables?.print() ?? '';
    return { exit: 0, text: json ? `${JSON.stringify({ sql: text })}\n` : text || '-- this engine has no schema\n' };
  }
  const applied = (await tables?.apply()) ?? [];
  if (json) return { exit: 0, text: `${JSON.stringify({ applied })}\n` };
  return { exit: 0, text: applied.length === 0 ? 'up to date\n' : applied.map((title) => `made: ${title}\n`).join('') };
}
