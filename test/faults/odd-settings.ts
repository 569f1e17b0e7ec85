/** Settings of a server that an operator changes while it is in use. Connections keep the old ones, so they are ended with it. */
export interface OddSetting {
  readonly name: string;
  /** The engine's page says so: nothing works until it is as it was, and leases end meanwhile. */
  readonly refused: boolean;
  readonly set: () => Promise<unknown>;
  /** As it was. */
  readonly reset: () => Promise<unknown>;
}

/** @param settings each with the value that is odd. @param refused those of them that the engine refuses to work with. */
export function oddSettings(
  settings: Readonly<Record<string, string>>,
  set: (name: string, value: string) => Promise<unknown>,
  reset: (name: string) => Promise<unknown>,
  refused: readonly string[] = [],
): readonly OddSetting[] {
  return Object.entries(settings).map(([name, value]) => ({
    name: `${name} = ${value}`,
    refused: refused.includes(name),
    set: () => set(name, value),
    reset: () => reset(name),
  }));
}
