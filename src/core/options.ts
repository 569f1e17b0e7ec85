import { show } from './duration.js';
import { ConfigError } from './errors.js';

/** The options that a call knows, all of them: one that is missing here does not compile. */
export type Known<Options> = Readonly<Record<keyof Options, true>>;

/** What to say of an option that others have, or that is had in another way. */
export type Advice = Readonly<Record<string, string>>;

/**
 * What is misspelt would be ignored, and nobody would notice: types see it, but not everybody has types.
 *
 * @param what who was given them: 'A lock'
 */
export function checkOptions<Options>(given: unknown, known: Known<Options>, what: string, advice: Advice = {}): void {
  if (typeof given !== 'object' || given === null || Array.isArray(given))
    throw new ConfigError(`${what} takes its options as an object; got ${show(given)}.`);
  for (const name of Object.keys(given)) if (!Object.hasOwn(known, name)) throw unknown(name, known, what, advice);
}

function unknown(name: string, known: object, what: string, advice: Advice): ConfigError {
  const names = Object.keys(known);
  const said = Object.hasOwn(advice, name) ? advice[name] : undefined;
  const meant = said === undefined ? nearest(name, names) : undefined;
  const hint = said ?? (meant === undefined ? '' : `Did you mean ${show(meant)}? `) + `Known: ${names.join(', ')}.`;
  return new ConfigError(`${what} has no option ${show(name)}. ${hint}`);
}

/** The one that was probably meant: part of the other, or only a few letters away. */
export function nearest(name: string, names: readonly string[]): string | undefined {
  const asked = name.toLowerCase();
  const ranked = names.map((candidate) => {
    const other = candidate.toLowerCase();
    const isPart = asked.includes(other) || other.includes(asked);
    return { candidate, steps: isPart ? 0 : editSteps(asked, other) };
  });
  const best = ranked.sort((one, other) => one.steps - other.steps)[0];
  return best && best.steps <= Math.max(2, Math.floor(asked.length / 3)) ? best.candidate : undefined;
}

/** How many letters must be added, taken away or changed to get from one to the other (Levenshtein). */
function editSteps(from: string, to: string): number {
  let steps = to.length;
  let row = to.split('').map((letter, at) => ({ letter, steps: at + 1 }));
  for (const [line, wanted] of from.split('').entries()) {
    let corner = line;
    steps = line + 1;
    row = row.map(({ letter, steps: above }) => {
      steps = Math.min(above + 1, steps + 1, corner + (letter === wanted ? 0 : 1));
      corner = above;
      return { letter, steps };
    });
  }
  return steps;
}
