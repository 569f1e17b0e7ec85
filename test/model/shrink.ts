/** Makes a program that breaks a promise as small as it goes, as long as it still breaks the same one. */
import { play, type Telling } from './play.js';
import { type Actor, partsOf, type Program, type Step, type Steps, withParts } from './program.js';

const MOST_PLAYS = 480;
/** Worlds that live side by side share the cost of the event loop's turns. */
const SIDE_BY_SIDE = 16;

export async function shrink(program: Program, rule: string, telling: Telling): Promise<Program> {
  const fails = async (candidate: Program): Promise<boolean> => {
    const { violations } = await play(candidate, telling);
    return violations[0]?.rule === rule;
  };
  let best = program;
  let plays = 0;
  for (let candidates = [...simpler(best)]; candidates.length > 0 && plays < MOST_PLAYS; plays += SIDE_BY_SIDE) {
    const some = candidates.splice(0, SIDE_BY_SIDE);
    const failed = await Promise.all(some.map(fails));
    const smaller = some[failed.indexOf(true)];
    if (!smaller) continue;
    best = smaller;
    candidates = [...simpler(best)];
  }
  return best;
}

/** The largest cuts first. */
function* simpler(program: Program): Iterable<Program> {
  const { actors, network, instances } = program;
  for (const [at] of actors.entries()) {
    if (actors.length > 1) yield { ...program, actors: actors.toSpliced(at, 1) };
  }
  if (network.loss + network.twice + network.pushLoss > 0) {
    yield { ...program, network: { ...network, loss: 0, twice: 0, pushLoss: 0 } };
  }
  for (const [at, actor] of actors.entries()) {
    for (const steps of fewer(actor.steps)) yield { ...program, actors: actors.with(at, { ...actor, steps }) };
  }
  const used = new Set(actors.map(({ instance }) => instance));
  if (used.size < instances.length) yield withoutUnused(program, used);
  if (network.delayMs !== 5) yield { ...program, network: { ...network, delayMs: 5 } };
}

function withoutUnused(program: Program, used: ReadonlySet<number>): Program {
  const kept = [...used].sort((a, b) => a - b);
  const actors: Actor[] = program.actors.map((actor) => ({ ...actor, instance: kept.indexOf(actor.instance) }));
  return { ...program, actors, instances: kept.map((at) => program.instances[at]!) };
}

function* fewer(steps: Steps): Iterable<Steps> {
  for (const [at, step] of steps.entries()) {
    yield steps.toSpliced(at, 1);
    for (const part of partsOf(step)) if (part.length > 0) yield steps.toSpliced(at, 1, ...part);
  }
  for (const [at, step] of steps.entries()) {
    for (const lighter of lighten(step)) yield steps.with(at, lighter);
    const parts = partsOf(step);
    for (const [index, part] of parts.entries()) {
      for (const less of fewer(part)) yield steps.with(at, withParts(step, parts.with(index, less)));
    }
  }
}

function* lighten(step: Step): Iterable<Step> {
  if (!('options' in step) || !step.options) return;
  const { options, ...rest } = step;
  yield rest;
  for (const key of Object.keys(options)) {
    if (Object.keys(options).length > 1) {
      yield {
        ...step,
        options: Object.fromEntries(Object.entries(options).filter(([other]) => other !== key)),
      };
    }
  }
}
