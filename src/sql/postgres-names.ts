/** How our tables and functions are called. Identifiers can't be bound like values, so they are checked strictly. */
import { ConfigError } from '../core/errors.js';

export interface SchemaOptions {
  /**
   * The schema that the tables are in; made if it is missing. Default: `holdfast`, a schema of their own, so that the
   * tools that watch over the application's schema do not take them for a mistake.
   */
  readonly schema?: string | undefined;
  /** What the names of tables and functions begin with. Default: `holdfast_`. */
  readonly tablePrefix?: string | undefined;
}

/** PostgreSQL cuts names after 63 bytes, silently; our longest word has 9. */
const SCHEMA = /^[A-Za-z_][A-Za-z0-9_]{0,62}$/;
const PREFIX = /^([A-Za-z_][A-Za-z0-9_]{0,39})?$/;

export class Names {
  readonly schema: string;
  readonly #prefix: string;

  constructor({ schema = 'holdfast', tablePrefix = 'holdfast_' }: SchemaOptions) {
    if (!SCHEMA.test(schema))
      throw new ConfigError('postgres: schema is a letter or _, then letters, digits and _, at most 63.');
    if (!PREFIX.test(tablePrefix))
      throw new ConfigError('postgres: tablePrefix is a letter or _, then letters, digits and _, at most 40.');
    this.schema = schema;
    this.#prefix = tablePrefix;
  }

  /** A table or a function, with its schema, as SQL has to have it. */
  of(word: string): string {
    return `"${this.schema}"."${this.#prefix}${word}"`;
  }

  /** An index is always in its table's schema. */
  index(word: string): string {
    return `"${this.#prefix}${word}"`;
  }
}
