/** Settings of a server that an operator changes while it is in use. Connections keep the old ones, so they are ended with it. */
export interface OddSetting {
  readonly name: string;
  readonly set: () => Promise<unknown>;
  /** As it was. */
  readonly reset: () => Promise<unknown>;
}

/** @param settings each with the value that is odd. */
export function oddSettings(
  settings: Readonly<Record<string, string>>,
  set: (name: string, value: string) => Promise<unknown>,
  reset: (name: string) => Promise<unknown>,
): readonly OddSetting[] {
  return Object.entries(settings).map(([name, value]) => ({
    name: `${name} = ${value}`,
    set: () => set(name, value),
    reset: () => reset(name),
  }));
}
