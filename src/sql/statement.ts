/**
 * A statement and its values. It is written with `?` for each value, in order and each once, so that it can be said in
 * the way of every library: with `$1` for PostgreSQL, with `?`, or cut at the values, for those who take a template.
 *
 * Our own values are text: tokens in decimals, cast by the statement to integers of 64 bits. Drivers disagree about
 * bigint, and a token that became a double would be compared with another number than was shown.
 */
export type Dialect = 'postgres' | 'mysql' | 'sqlite';

export interface Statement {
  readonly sql: string;
  readonly params: readonly unknown[];
  /** The text around the values: `sql(parts, ...params)` is how tagged templates are called. */
  readonly parts: TemplateStringsArray;
}

/** No `?` may stand in the text for anything else; identifiers are checked for that. */
export function statement(dialect: Dialect, text: string, params: readonly unknown[]): Statement {
  const cut = text.split('?');
  const parts = Object.freeze(Object.assign([...cut], { raw: Object.freeze([...cut]) }));
  const sql = dialect === 'postgres' ? cut.reduce((before, part, at) => `${before}$${at}${part}`) : text;
  return { sql, params, parts };
}
