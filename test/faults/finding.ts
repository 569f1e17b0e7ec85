import type { HistoryEvent, Property } from './history.js';

/** A promise that was broken, once. */
export interface Violation {
  readonly property: Property;
  /** When it could be seen first. */
  readonly at: number;
  readonly name: string | undefined;
  /** One sentence. */
  readonly what: string;
  /** The few events that show it, in order of time. */
  readonly events: readonly HistoryEvent[];
}

/** What a checker found, and what it could not decide: a run with something undecided is not green. */
export interface Finding {
  /** How many things were judged. A checker that found nothing wrong with nothing says nothing. */
  readonly cases: number;
  readonly violations: readonly Violation[];
  readonly undecided: readonly string[];
}

export function found(cases: number, violations: readonly Violation[]): Finding {
  return { cases, violations, undecided: [] };
}

export function violation(
  property: Property,
  name: string | undefined,
  what: string,
  events: readonly (HistoryEvent | undefined)[],
): Violation {
  const shown = events.filter((event) => event !== undefined).sort((a, b) => a.at - b.at);
  return { property, at: shown.at(-1)?.at ?? 0, name, what, events: shown };
}
