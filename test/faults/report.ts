/** The report of a run, as Markdown: verdict, figures, what was broken, how to see it again. */
import type { Violation } from './finding.js';
import type { Figures } from './figures.js';
import type { HistoryEvent, Property } from './history.js';
import type { Run } from './run.js';
import { CHECKERS, type Control, type Verdict } from './verdict.js';

export interface ReportOptions {
  /** Where the picture is, as the report should link it. */
  readonly timeline?: string;
  /** Nemeses that were not run, and why. */
  readonly notRun?: readonly string[];
  /** How to judge the same history again. */
  readonly replay?: string;
}

/** Of each property, so many violations are told; the rest is a number. */
const MOST_TOLD = 5;

const PROMISES: Readonly<Record<Property, string>> = {
  belief: 'no two leases that exclude each other believe at one instant',
  tokens: 'tokens are unique and grow in real-time order',
  register: 'the fenced register is linearizable and loses no update',
  fifo: 'waiters are served in their order',
  wakeups: 'no free lock keeps a waiter waiting',
  liveness: 'after healing everybody is served, and every promise settles',
  truth: 'every loss is told, and what is over stays over',
  kept: 'no lease is lost but by a fault that can cost it',
  clean: 'nothing is left behind',
  secrets: 'no secret is written anywhere',
};

export function report(verdict: Verdict, options: ReportOptions = {}): string {
  const { run, failures, counted } = verdict;
  const { engine, lock } = run.info;
  const first = failures[0] ?? counted[0];
  return [
    `# ${engine}, ${lock}: ${verdict.outcome}`,
    summary(verdict),
    options.timeline === undefined ? '' : `![Timeline](${options.timeline})`,
    '## Promises',
    promises(verdict),
    '## Figures',
    figures(verdict.figures),
    verdict.control ? `## Negative control\n\n${control(verdict.control)}` : '',
    first ? `## First violation\n\n${firstViolation(run, first)}` : '',
    failures.length > 0 ? `## Broken promises\n\n${told(run, failures)}` : '',
    counted.length > 0 ? `## Counted, not judged\n\n${told(run, counted)}` : '',
    '## Setting',
    setting(run),
    options.notRun?.length ? `Not run:\n\n${options.notRun.map((line) => `- ${line}`).join('\n')}` : '',
    options.replay === undefined ? '' : `Judge it again:\n\n\`\`\`sh\n${options.replay}\n\`\`\``,
  ]
    .filter((part) => part !== '')
    .join('\n\n')
    .concat('\n');
}

/** The event as a line for people: when, who, what. */
function describe(run: Run, event: HistoryEvent): string {
  return `${clock(run, event.at).padStart(12)}  ${tell(event)}`;
}

function summary({ outcome, failures, voidBecause }: Verdict): string {
  if (outcome === 'failed') return `**${failures.length} promises were broken**, the first: ${failures[0]!.what}`;
  if (outcome === 'void') return `**The run proves nothing.**\n\n${voidBecause.map((why) => `- ${why}`).join('\n')}`;
  return 'Every promise was kept.';
}

function promises({ run, failures, counted, cases }: Verdict): string {
  const judged = new Set(run.info.judged);
  const rows = (Object.keys(CHECKERS) as Property[]).map((property) => {
    const broken = [...failures, ...counted].filter((violation) => violation.property === property).length;
    return [
      property,
      PROMISES[property],
      judged.has(property) ? judgedCases(cases[property]) : 'counted only',
      `${cases[property]}`,
      `${broken}`,
    ];
  });
  return table(['property', 'promise', 'judged', 'cases', 'broken'], rows);
}

/** A promise that nothing put to the test was not kept, only not broken. */
function judgedCases(cases: number): string {
  return cases > 0 ? 'yes' : 'yes, but nothing to judge';
}

function figures(figures: Figures): string {
  const { waitMs, register, counter, seconds, granted } = figures;
  const faults = Object.entries(figures.faults).map(([nemesis, count]) => `${count} × ${nemesis}`);
  return table(
    ['figure', 'value'],
    [
      ['duration', `${seconds.toFixed(1)} s, ${figures.lives} processes`],
      [
        'acquires',
        `${figures.acquires}: ${granted} granted, ${figures.busy} busy, ${figures.aborted} aborted, ${figures.unknown} unknown`,
      ],
      ['granted per second', (seconds > 0 ? granted / seconds : 0).toFixed(1)],
      ['granted before the first fault', `${figures.grantedBeforeFaults}`],
      [
        'wait for a grant',
        `median ${waitMs.median.toFixed(1)} ms, 99 % ${waitMs.p99.toFixed(1)} ms, longest ${waitMs.max.toFixed(1)} ms`,
      ],
      ['leases lost', lost(figures)],
      ['fenced register', `${register.ok} accepted, ${register.refused} refused, ${register.unknown} unknown`],
      ['unfenced counter', `${counter.acknowledged} updates, ${counter.lost} lost`],
      ['faults', faults.join(', ') || 'none'],
      ['faults while somebody held', `${figures.faultsWhileHeld}`],
      ['faults that hit a holder', `${figures.faultsOnHolder}`],
      ['snapshots of lines', `${figures.snapshots}`],
    ],
  );
}

function lost({ lostBy }: Figures): string {
  return (
    Object.entries(lostBy)
      .map(([cause, count]) => `${count} by ${cause}`)
      .join(', ') || 'none'
  );
}

function control({ lock, granted, overlaps, lostUpdates, staleAccepted, violated }: Control): string {
  const seen = violated ? 'broke, as it must' : '**did not break**';
  return `The ${lock} lock ${seen}: of ${granted} grants ${overlaps} overlapped, ${lostUpdates} unfenced updates were lost, ${staleAccepted} breaches of the fenced register.`;
}

function firstViolation(run: Run, { what, events, at }: Violation): string {
  const near = run.faults.filter(({ from, to }) => from <= at && to >= at - 2 * run.ttl).slice(-5);
  const lines = [...near.map(({ begin }) => begin), ...events]
    .sort((a, b) => a.at - b.at)
    .map((event) => describe(run, event));
  return `${what}\n\n\`\`\`text\n${lines.join('\n')}\n\`\`\``;
}

function told(run: Run, violations: readonly Violation[]): string {
  return (Object.keys(CHECKERS) as Property[])
    .flatMap((property) =>
      toldOf(
        run,
        violations.filter((violation) => violation.property === property),
      ),
    )
    .join('\n');
}

function toldOf(run: Run, violations: readonly Violation[]): readonly string[] {
  const lines = violations
    .slice(0, MOST_TOLD)
    .map(({ property, what, at }) => `- ${property}, at ${clock(run, at)}: ${what}`);
  if (violations.length > MOST_TOLD) lines.push(`- ${violations.length - MOST_TOLD} more of these`);
  return lines;
}

function setting({ info }: Run): string {
  return table(
    ['setting', 'value'],
    [
      ['seed', `${info.seed}`],
      ['ttl', `${info.ttlMs} ms`],
      ['workers', `${info.workers}`],
      ['names', info.names.join(', ')],
      ['nemeses', info.nemeses.join(', ') || 'none'],
      ...Object.entries(info.versions).map(([what, version]) => [what, version]),
    ],
  );
}

function table(head: readonly string[], rows: readonly (readonly string[])[]): string {
  return [head, head.map(() => '---'), ...rows].map((cells) => tableRow(cells)).join('\n');
}

function tableRow(cells: readonly string[]): string {
  return `| ${cells.map((cell) => cell.replaceAll('|', '\\|')).join(' | ')} |`;
}

function clock(run: Run, at: number): string {
  return `${((at - run.start) / 1e6).toFixed(4)} s`;
}

type Tellers = { readonly [K in HistoryEvent['kind']]: (event: Extract<HistoryEvent, { kind: K }>) => string };

const TELLERS: Tellers = {
  run: ({ engine, lock, seed }) => `run of ${lock} on ${engine}, seed ${seed}`,
  worker: ({ worker, what }) => `${worker} ${what}`,
  call: ({ worker, what, id, name, token, value }) =>
    `${worker} calls ${what} ${id} of ${name}${given('token', token)}${given('value', value)}`,
  return: ({ worker, id, out, token, value, error }) =>
    `${worker} ${id} returns ${out}${given('token', token)}${given('value', value)}${given('error', error)}`,
  held: ({ worker, lease, held }) => `${worker} asks ${lease}: ${held ? 'held' : 'not held'}`,
  lost: ({ worker, lease, reason }) => `${worker} is told that ${lease} is lost: ${reason}`,
  line: ({ name, claims }) => `${name}: ${claims.map(({ lease, state }) => `${lease} ${state}`).join(', ') || 'empty'}`,
  fault: ({ nemesis, target, what, detail }) => `${nemesis} on ${target}: ${what}${given('detail', detail)}`,
  phase: ({ phase }) => `phase ${phase}`,
  leftover: ({ what, detail }) => `left behind: ${what} ${detail}`,
  counter: ({ name, value }) => `the counter of ${name} is ${value}`,
};

function tell(event: HistoryEvent): string {
  return (TELLERS[event.kind] as (event: HistoryEvent) => string)(event);
}

function given(what: string, value: string | number | undefined): string {
  return value === undefined ? '' : `, ${what} ${value}`;
}
