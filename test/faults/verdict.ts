/**
 * The judgement of a run from its history alone, so that a history that was kept can be judged again.
 *
 * Failed: a promise was broken that the engine makes under these faults. Void: nothing was broken, but the run proves
 * nothing, because too little happened, something could not be decided, or the naive lock survived the same. Else passed.
 */
import { checkBelief } from './checkers/belief.js';
import { checkFifo } from './checkers/fifo.js';
import { checkKept } from './checkers/kept.js';
import { checkClean, checkSecrets } from './checkers/leftovers.js';
import { checkLiveness } from './checkers/liveness.js';
import { checkRegister } from './checkers/register.js';
import { checkTokens } from './checkers/tokens.js';
import { checkTruth } from './checkers/truth.js';
import { whyVoid } from './checkers/validity.js';
import { checkWakeups } from './checkers/wakeups.js';
import { type Figures, figuresOf } from './figures.js';
import type { Finding, Violation } from './finding.js';
import type { HistoryEvent, Property } from './history.js';
import { type Run, runOf } from './run.js';

export const CHECKERS: Readonly<Record<Property, (run: Run) => Finding>> = {
  belief: checkBelief,
  tokens: checkTokens,
  register: checkRegister,
  fifo: checkFifo,
  wakeups: checkWakeups,
  liveness: checkLiveness,
  truth: checkTruth,
  kept: checkKept,
  clean: checkClean,
  secrets: checkSecrets,
};

export interface Verdict {
  readonly outcome: 'passed' | 'failed' | 'void';
  readonly run: Run;
  readonly figures: Figures;
  /** Of judged properties, in order of time. */
  readonly failures: readonly Violation[];
  /** Of the others: nobody promised it, and it is worth knowing. */
  readonly counted: readonly Violation[];
  /** How much each checker had to judge. */
  readonly cases: Readonly<Record<Property, number>>;
  /** Why the run proves nothing. */
  readonly voidBecause: readonly string[];
  readonly control: Control | undefined;
}

/** The same workload on a lock that is known to be broken. */
export interface Control {
  readonly lock: string;
  readonly granted: number;
  readonly overlaps: number;
  readonly lostUpdates: number;
  /** Breaches of the fenced register. */
  readonly staleAccepted: number;
  /** Whether the harness saw it break. */
  readonly violated: boolean;
}

/** The control's history comes from a run of its own. Without one, nothing is said about it. */
export function judge(history: readonly HistoryEvent[], controlHistory?: readonly HistoryEvent[]): Verdict {
  const run = runOf(history);
  const judged = new Set(run.info.judged);
  const findings = (Object.keys(CHECKERS) as Property[]).map((property) => ({
    property,
    finding: CHECKERS[property](run),
  }));
  const violations = findings.flatMap(({ finding }) => finding.violations).sort((a, b) => a.at - b.at);
  const failures = violations.filter(({ property }) => judged.has(property));
  const control = controlHistory && controlOf(controlHistory);
  const voidBecause = [
    ...whyVoid(run),
    ...findings.filter(({ property }) => judged.has(property)).flatMap(({ finding }) => finding.undecided),
    ...(control?.violated === false
      ? [`The ${control.lock} lock survived the same workload: the harness sees nothing.`]
      : []),
  ];
  return {
    outcome: failures.length > 0 ? 'failed' : voidBecause.length > 0 ? 'void' : 'passed',
    run,
    figures: figuresOf(run),
    failures,
    counted: violations.filter(({ property }) => !judged.has(property)),
    cases: Object.fromEntries(findings.map(({ property, finding }) => [property, finding.cases])) as Verdict['cases'],
    voidBecause,
    control,
  };
}

export function controlOf(history: readonly HistoryEvent[]): Control {
  const run = runOf(history);
  const { granted, counter } = figuresOf(run);
  const overlaps = checkBelief(run).violations.length;
  const staleAccepted = checkRegister(run).violations.length;
  const violated = overlaps + staleAccepted + counter.lost > 0;
  return { lock: run.info.lock, granted, overlaps, lostUpdates: counter.lost, staleAccepted, violated };
}
