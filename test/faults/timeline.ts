/**
 * A run as a picture: a row for each worker, what it held in the colour of the name, faults over it, and the first
 * violation. Plain SVG, drawn around the first violation, or the first fault if there is none.
 */
import type { Violation } from './finding.js';
import type { Interval, Lease } from './leases.js';
import type { Fault, Run } from './run.js';
import type { Verdict } from './verdict.js';

const WIDTH = 1_400;
const LEFT = 90;
const RIGHT = 20;
const TOP = 70;
/** Each name has a track of its own in every row, so that one colour twice in a column is two holders. */
const TRACK = 6;
const FRAME = 7;
const LONGEST = 60e6;
/** Well apart for most eyes, in any order. */
const COLOURS = ['#4477aa', '#228833', '#ccbb44', '#aa3377', '#66ccee', '#8c6d31', '#7a6fd0', '#888888'];
const SERVER = 'server';

export function timeline({ run, failures, counted }: Verdict): string {
  return new Picture(run, failures[0] ?? counted[0]).draw();
}

class Picture {
  readonly #run: Run;
  readonly #violation: Violation | undefined;
  readonly #window: Interval;
  readonly #rows: readonly string[];
  readonly #rowHeight: number;
  readonly #height: number;

  constructor(run: Run, violation: Violation | undefined) {
    this.#run = run;
    this.#violation = violation;
    this.#window = windowOf(run, violation);
    this.#rows = rowsOf(run);
    this.#rowHeight = Math.max(28, 2 * FRAME + run.info.names.length * TRACK);
    this.#height = TOP + this.#rows.length * this.#rowHeight + 40;
  }

  draw(): string {
    const size = `viewBox="0 0 ${WIDTH} ${this.#height}" width="${WIDTH}" height="${this.#height}"`;
    return [
      `<svg xmlns="http://www.w3.org/2000/svg" ${size} font-family="system-ui, sans-serif" font-size="12">`,
      `<rect width="${WIDTH}" height="${this.#height}" fill="#ffffff"/>`,
      ...this.#head(),
      ...this.#axis(),
      ...this.#rows.map((row, at) => this.#label(row, at)),
      ...[...this.#run.leases.values()].flatMap((lease) => this.#hold(lease)),
      ...this.#run.faults.flatMap((fault) => this.#fault(fault)),
      ...this.#mark(),
      '</svg>',
      '',
    ].join('\n');
  }

  #head(): readonly string[] {
    const { engine, lock, seed, names } = this.#run.info;
    return [
      `<text x="${LEFT}" y="20" font-size="15" font-weight="600">${escape(`${lock} on ${engine}, seed ${seed}`)}</text>`,
      ...names.map((name, at) => {
        const x = LEFT + at * 120;
        return `<rect x="${x}" y="29" width="12" height="12" fill="${this.#colour(name)}"/><text x="${x + 17}" y="40">${escape(name)}</text>`;
      }),
    ];
  }

  #axis(): readonly string[] {
    const { from, to } = this.#window;
    const step = tickOf(to - from);
    const first = Math.ceil((from - this.#run.start) / step);
    const last = Math.floor((to - this.#run.start) / step);
    return Array.from({ length: Math.max(0, last - first + 1) }, (_, at) => {
      const time = (first + at) * step;
      const x = this.#x(this.#run.start + time);
      const text = `${Number((time / 1e6).toFixed(3))} s`;
      return `<line x1="${x}" y1="${TOP - 8}" x2="${x}" y2="${this.#height - 30}" stroke="#e4e4e4"/><text x="${x}" y="${this.#height - 12}" text-anchor="middle" fill="#666666">${text}</text>`;
    });
  }

  #label(row: string, at: number): string {
    const y = this.#y(at);
    const middle = y + this.#rowHeight / 2 + 4;
    return `<line x1="${LEFT}" y1="${y}" x2="${WIDTH - RIGHT}" y2="${y}" stroke="#cccccc"/><text x="${LEFT - 10}" y="${middle}" text-anchor="end">${escape(row)}</text>`;
  }

  /** From the grant to when the worker stopped acting on it; full colour where it is known to have believed. */
  #hold({ id, name, mode, worker, grant, over, token, beliefs }: Lease): readonly string[] {
    const y = this.#y(this.#rowOf(worker)) + FRAME + Math.max(0, this.#run.info.names.indexOf(name)) * TRACK;
    const box = { y, height: TRACK - 1, title: `${name}, ${id}, ${mode}, token ${token ?? 'none'}` };
    const colour = this.#colour(name);
    const guilty = this.#isInViolation(id) ? ' stroke="#000000" stroke-width="1.5"' : '';
    return [
      ...beliefs.flatMap((belief) => this.#bar(belief, { y, height: TRACK - 1 }, `fill="${colour}"`)),
      ...this.#bar({ from: grant.at, to: over }, box, `fill="${colour}" fill-opacity="0.4"${guilty}`),
    ];
  }

  #isInViolation(id: string): boolean {
    return this.#violation?.events.some((event) => event.kind === 'return' && event.id === id) ?? false;
  }

  #fault({ nemesis, target, from, to, begin }: Fault): readonly string[] {
    const y = this.#y(this.#rowOf(target)) + 1;
    const detail = begin.detail === undefined ? '' : `: ${begin.detail}`;
    const box = { y, height: this.#rowHeight - 2, title: `${nemesis} on ${target}${detail}` };
    const bar = this.#bar({ from, to }, box, 'fill="#d62728" fill-opacity="0.18" stroke="#d62728" stroke-width="0.7"');
    if (bar.length === 0) return [];
    const x = this.#x(Math.max(from, this.#window.from)) + 2;
    return [...bar, `<text x="${x}" y="${y + 7}" font-size="8" fill="#a01818">${escape(nemesis)}</text>`];
  }

  #mark(): readonly string[] {
    if (!this.#violation) return [];
    const { at, property, what } = this.#violation;
    const x = this.#x(at);
    return [
      `<line x1="${x}" y1="${TOP - 8}" x2="${x}" y2="${this.#height - 30}" stroke="#000000" stroke-width="1.2" stroke-dasharray="4 3"><title>${escape(what)}</title></line>`,
      `<text x="${x}" y="${TOP - 11}" text-anchor="middle" font-weight="600">${escape(property)} ▾</text>`,
    ];
  }

  #bar({ from, to }: Interval, { y, height, title }: Box, look: string): readonly string[] {
    if (to < this.#window.from || from > this.#window.to) return [];
    const x = this.#x(Math.max(from, this.#window.from));
    // What is too short for the eye is drawn all the same.
    const width = Math.max(1, Number((this.#x(Math.min(to, this.#window.to)) - x).toFixed(1)));
    const rect = `<rect x="${x}" y="${y}" width="${width}" height="${height}" ${look}`;
    return [title === undefined ? `${rect}/>` : `${rect}><title>${escape(title)}</title></rect>`];
  }

  #x(at: number): number {
    const { from, to } = this.#window;
    return Number((LEFT + ((at - from) / (to - from)) * (WIDTH - LEFT - RIGHT)).toFixed(1));
  }

  #y(row: number): number {
    return TOP + row * this.#rowHeight;
  }

  #rowOf(worker: string): number {
    const row = this.#rows.indexOf(seatOf(worker));
    return row === -1 ? this.#rows.indexOf(SERVER) : row;
  }

  #colour(name: string): string {
    return COLOURS[this.#run.info.names.indexOf(name) % COLOURS.length] ?? '#555555';
  }
}

interface Box {
  readonly y: number;
  readonly height: number;
  readonly title?: string;
}

/** Lives of one worker share a row: `w3.1` and `w3.2`. */
function seatOf(worker: string): string {
  return worker.split('.')[0]!;
}

function rowsOf(run: Run): readonly string[] {
  const workers = [...new Set([...run.lives.keys()].map((worker) => seatOf(worker)))];
  return [...workers.sort((a, b) => a.localeCompare(b, 'en', { numeric: true })), SERVER];
}

/** A few ttl around a violation show how it came about; without one, the first faults are worth a longer look. */
function windowOf(run: Run, violation: Violation | undefined): Interval {
  const centre = Math.min(violation?.at ?? run.faults[0]?.from ?? run.start, run.end);
  const before = (violation ? 5 : 2) * run.ttl;
  const from = Math.max(run.start, centre - Math.min(before, LONGEST / 2));
  const length = Math.min(LONGEST, (violation ? 8 : 30) * run.ttl);
  return { from, to: Math.max(from + 1, Math.min(run.end, from + length)) };
}

/** Round, and about a dozen of them. */
function tickOf(length: number): number {
  const steps = [1e4, 2e4, 5e4, 1e5, 2e5, 5e5, 1e6, 2e6, 5e6];
  return steps.find((step) => length / step <= 14) ?? 1e7;
}

/** Control characters have no place in XML, however they are written. */
function escape(text: string): string {
  return text
    .replaceAll(/\p{Cc}/gu, ' ')
    .replaceAll('&', '&amp;')
    .replaceAll('<', '&lt;')
    .replaceAll('>', '&gt;')
    .replaceAll('"', '&quot;');
}
