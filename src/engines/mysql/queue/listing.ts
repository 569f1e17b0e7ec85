/** `inspect`: all lines of a namespace, or some of them, with their claims in order. */
import type { EngineClaim, EngineLine, LineQuery } from '../../../core/engine.js';
import { bytes, type Row, text } from '../client/port.js';
import { KINDS, type QueueTables } from './protocol.js';

export async function* listLines(
  { database, prefix: p, namespace }: QueueTables,
  { name, prefix = '' }: LineQuery,
): AsyncIterable<EngineLine> {
  // Every name that begins so lies before the prefix with its highest possible continuation.
  const [where, values] =
    name === undefined
      ? ['c.name >= ? AND c.name < ?', [bytes(prefix), Buffer.concat([bytes(prefix), Buffer.alloc(512, 0xff)])]]
      : ['c.name = ? AND c.name >= ?', [bytes(name), bytes(name.startsWith(prefix) ? '' : `${name}-`)]];
  const rows = await database.rows(
    `SELECT c.kind, c.name, CAST(l.capacity AS CHAR), c.id, c.held, CAST(c.weight AS CHAR), CAST(c.token AS CHAR),
        CAST(c.since DIV 1000 AS CHAR), c.note
      FROM ${p}claim c JOIN ${p}session s ON s.id = c.session
        JOIN ${p}line l ON l.namespace = c.namespace AND l.kind = c.kind AND l.name = c.name
      WHERE c.namespace = ? AND c.kind IN (0, 1) AND ${where} ORDER BY c.kind, c.name, c.token`,
    [namespace, ...values],
  );
  for (let at = 0; at < rows.length;) {
    const [kind, lineName, capacity] = rows[at]!;
    const claims: EngineClaim[] = [];
    const isHere = (row: Row | undefined): row is Row =>
      row !== undefined && row[0] === kind && text(row[1]) === text(lineName);
    for (let row = rows[at]; isHere(row); row = rows[at]) {
      claims.push(viewed(row));
      at += 1;
    }
    yield { kind: KINDS[Number(kind)]!, name: text(lineName), capacity: Number(capacity), claims };
  }
}

function viewed([, , , id, held, weight, token, since, note]: Row): EngineClaim {
  return {
    id: text(id),
    state: Number(held) === 1 ? 'held' : 'waiting',
    weight: Number(weight),
    token: BigInt(text(token)),
    since: Number(since),
    note: text(note),
  };
}
