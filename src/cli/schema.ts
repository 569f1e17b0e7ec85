/** `holdfast schema print` and `apply`: the tables that an engine keeps its locks in, for whoever has the rights to make them. */
import { schemaFromUrl } from '../index.js';
import { usage } from './failure.js';
import type { Printout } from './list.js';
import type { ListOptions } from './options.js';
import { engineUrl } from './place.js';
import { json, printable } from './text.js';

export async function schema({ operands: [action], url, json: asJson }: ListOptions): Promise<Printout> {
  if (action !== 'print' && action !== 'apply') throw usage('it is: holdfast schema print, or holdfast schema apply');
  await using tables = await schemaFromUrl(engineUrl(url, process.env));
  if (action === 'print') {
    const text = tables?.print() ?? '';
    return { exit: 0, text: asJson ? json({ sql: text }) : text || '-- this engine has no schema\n' };
  }
  const applied = (await tables?.apply()) ?? [];
  if (asJson) return { exit: 0, text: json({ applied }) };
  return {
    exit: 0,
    text: applied.length === 0 ? 'up to date\n' : applied.map((title) => `made: ${printable(title)}\n`).join(''),
  };
}
