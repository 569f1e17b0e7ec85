/** All lines that have claims. */
import type { EngineLine, LineQuery } from '../../core/engine.js';
import { lineRef } from '../../kit/line-id.js';
import type { Database } from './client/database.js';
import type { Names } from '../../sql/postgres-names.js';

const LINES_AT_ONCE = 200;

type ListedClaim = [id: string, held: boolean, weight: number, token: string, since: number, note: string];

export async function* listLines(
  database: Database,
  names: Names,
  namespace: string,
  { name, prefix }: LineQuery,
): AsyncIterable<EngineLine> {
  const wanted = name === undefined ? null : [`l${name}`, `s${name}`];
  const text = `SELECT l.line, l.capacity::text, pg_catalog.json_agg(pg_catalog.json_build_array(
        c.id, c.held, c.weight, c.token::text, pg_catalog.floor(extract(epoch FROM c.since) * 1000), c.note) ORDER BY c.token)::text
      FROM ${names.of('line')} l JOIN ${names.of('claim')} c USING (namespace, line)
      WHERE namespace = $1 AND line > $2 AND ($3::text[] IS NULL OR line = ANY ($3))
        AND pg_catalog.starts_with(pg_catalog.substr(line, 2), $4)
      GROUP BY l.namespace, l.line ORDER BY l.line LIMIT ${LINES_AT_ONCE}`;
  for (let after = ''; ;) {
    const rows = await database.query(text, [namespace, after, wanted, prefix ?? '']);
    for (const [line, capacity, claims] of rows) {
      after = line!;
      yield {
        ...lineRef(after),
        capacity: Number(capacity),
        claims: (JSON.parse(claims!) as ListedClaim[]).map(listed),
      };
    }
    if (rows.length < LINES_AT_ONCE) return;
  }
}

function listed([id, held, weight, token, since, note]: ListedClaim): EngineLine['claims'][number] {
  return { id, state: held ? 'held' : 'waiting', weight, token: BigInt(token), since, note };
}
