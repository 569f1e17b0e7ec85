/**
 * The grammar: what a program of users of Holdfast may do. A program is data, so that it can be made from a seed, shrunk
 * and printed. Leases are put into slots, which all actors share; a step that names an empty slot does nothing.
 */
import { ALL } from '../../src/core/line.js';

export interface Program {
  /** Decides what the network does, and every other chance of the world. */
  readonly seed: number;
  readonly network: Weather;
  readonly instances: readonly InstanceSpec[];
  readonly actors: readonly Actor[];
}

/** How calls and messages fare until the world is healed. Rates are chances of each message. */
export interface Weather {
  readonly delayMs: number;
  readonly loss: number;
  readonly twice: number;
  readonly pushLoss: number;
}

export interface InstanceSpec {
  readonly ttl: number;
  readonly cohort: boolean;
  readonly maxWaiters?: number;
}

/** A task of one instance. It does its steps one after the other; what a step rejects with does not end it. */
export interface Actor {
  readonly instance: number;
  readonly steps: readonly Step[];
}

/** `semaphore s` has three permits. */
export type LockRef = `${'mutex' | 'read' | 'write' | 'semaphore'} ${string}`;

export interface Options {
  readonly timeout?: number;
  /** Has a signal, which is aborted after so many milliseconds. */
  readonly abortAfter?: number;
  readonly maxHold?: number;
  readonly permits?: number;
  /** The slot of a lease to be inside of. */
  readonly within?: string;
}

export type Step = (
  | {
      readonly do: 'run';
      readonly lock: LockRef;
      readonly as: string;
      readonly options?: Options;
      readonly body: Steps;
    }
  | { readonly do: 'acquire' | 'try'; readonly lock: LockRef; readonly as: string; readonly options?: Options }
  /** The leases go to the slots `<as>0`, `<as>1`, … With a body it is a run, else an acquire. */
  | {
      readonly do: 'all';
      readonly locks: readonly LockRef[];
      readonly as: string;
      readonly options?: Options;
      readonly body?: Steps;
    }
  | { readonly do: 'lead'; readonly name: string; readonly as: string; readonly body: Steps }
  | {
      readonly do: 'once';
      readonly name: string;
      readonly as: string;
      readonly atLeast?: number;
      readonly atMost?: number;
      readonly body: Steps;
    }
  | { readonly do: 'release'; readonly lease: string }
  | { readonly do: 'downgrade'; readonly lease: string; readonly as: string }
  /** Shows the lease at the register of its name. */
  | { readonly do: 'get' | 'set'; readonly lease: string }
  /** Does the steps when the lease's signal aborts, in the context of this step. */
  | { readonly do: 'onLost'; readonly lease: string; readonly steps: Steps }
  /** Takes away the claim at this place of a line. */
  | { readonly do: 'evict'; readonly name: string; readonly place: number }
  | { readonly do: 'close'; readonly drain?: number }
  /** Goes on when all have ended, or one has thrown. */
  | { readonly do: 'together'; readonly branches: readonly Steps[] }
  /** Begins the steps and does not wait for them. */
  | { readonly do: 'detach'; readonly steps: Steps }
  | { readonly do: 'pause'; readonly ms: number }
  /** The event loop of this instance's process stands still; the next step runs before any timer does. */
  | { readonly do: 'stall'; readonly ms: number }
  /** Ends the function, or the actor, that it is in. */
  | { readonly do: 'throw' }
  /** Nothing passes; nothing arrives here; the server hangs. */
  | { readonly do: 'fault'; readonly what: 'cut' | 'deafen' | 'hang'; readonly ms: number }
) & {
  /** In a fixed program, how it must end: `granted`, `busy`, `true`, `false`, `ran`, `done`, `thrown` or an error's code. */
  readonly expect?: string;
  /** In a fixed program, and at most after so many milliseconds. */
  readonly withinMs?: number;
};

export type Steps = readonly Step[];

/** A line, and how much of it a lock takes. */
export interface Share {
  readonly key: string;
  readonly name: string;
  readonly kind: 'lock' | 'semaphore';
  readonly weight: number;
  readonly capacity: number;
}

export const PERMITS = 3;

export function shareOf(ref: LockRef, options: Options = {}): Share {
  const [what, name] = ref.split(' ') as [string, string];
  if (what === 'semaphore') {
    return { key: ref, name, kind: 'semaphore', weight: options.permits ?? 1, capacity: PERMITS };
  }
  return { key: `lock ${name}`, name, kind: 'lock', weight: what === 'read' ? 1 : ALL, capacity: ALL };
}

/** The lists of steps inside of a step. */
export function partsOf(step: Step): readonly Steps[] {
  if (step.do === 'together') return step.branches;
  if (step.do === 'detach' || step.do === 'onLost') return [step.steps];
  return 'body' in step && step.body ? [step.body] : [];
}

export function withParts(step: Step, parts: readonly Steps[]): Step {
  if (step.do === 'together') return { ...step, branches: parts };
  if (step.do === 'detach' || step.do === 'onLost') return { ...step, steps: parts[0]! };
  return 'body' in step ? { ...step, body: parts[0]! } : step;
}

/** As it may be pasted into `programs.ts`. */
export function show({ network, instances, actors }: Program): string {
  const weather = `network: ${flat(network)}\ninstances: ${flat(instances)}`;
  return [weather, ...actors.map((actor) => `actor of ${actor.instance}:\n${showSteps(actor.steps, '  ')}`)].join('\n');
}

function showSteps(steps: Steps, indent: string): string {
  return steps
    .map((step) => {
      const parts = partsOf(step);
      const own = Object.fromEntries(
        Object.entries(step).filter(([key]) => !['body', 'steps', 'branches'].includes(key)),
      );
      const head = `${indent}${flat(own)}`;
      if (parts.length === 0) return head;
      return `${head} [\n${parts.map((part) => showSteps(part, `${indent}  `)).join(`\n${indent} ][\n`)}\n${indent}]`;
    })
    .join('\n');
}

function flat(value: object): string {
  return JSON.stringify(value)
    .replaceAll('"', "'")
    .replaceAll(/'(\w+)':/g, ' $1: ');
}
