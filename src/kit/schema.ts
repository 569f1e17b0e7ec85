/** Tables and routines that an engine keeps its locks in, made by numbered migrations that many may start at once. */
export interface Schema extends AsyncDisposable {
  /** Every statement, for somebody who has the rights to run them. Asks no server. */
  print(): string;
  /** Brings the schema up to date. Returns what was missing, in the order in which it was made. */
  apply(): Promise<readonly string[]>;
}
