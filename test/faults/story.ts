/** Histories written by hand, in milliseconds, for tests of the checkers. */
import {
  type CallEvent,
  type FaultEvent,
  type HistoryEvent,
  type LeftoverEvent,
  type Mode,
  type PhaseEvent,
  PROPERTIES,
  type Property,
  type ReturnEvent,
} from './history.js';
import { MS, type Run, runOf } from './run.js';

export interface Grant {
  readonly worker: string;
  readonly call: number;
  readonly grant: number;
  readonly token?: number;
  readonly name?: string;
  readonly mode?: Mode;
  readonly weight?: number;
  readonly capacity?: number;
}

/** With a ttl of 500 ms, and workers that live all the time. */
export class Story {
  readonly events: HistoryEvent[];
  #ids = 0;
  readonly #calls = new Map<string, CallEvent>();

  constructor(workers: readonly string[] = ['w1.1', 'w2.1', 'w3.1'], judged: readonly Property[] = PROPERTIES) {
    this.events = [
      {
        kind: 'run',
        at: 0,
        engine: 'paper',
        lock: 'holdfast',
        seed: 1,
        ttlMs: 500,
        workers: workers.length,
        names: ['mutex-1'],
        nemeses: ['stall'],
        judged,
        versions: { node: 'v20' },
      },
      ...workers.map((worker) => ({ kind: 'worker', at: 0, worker, what: 'started' }) as const),
    ];
  }

  get run(): Run {
    return runOf(this.events);
  }

  ended(worker: string, at: number): void {
    this.events.push({ kind: 'worker', at: at * MS, worker, what: 'ended' });
  }

  call(at: number, call: Omit<CallEvent, 'kind' | 'at' | 'id' | 'lease'> & { readonly lease?: string }): string {
    const id = `${call.worker}-${(this.#ids += 1)}`;
    const event: CallEvent = { kind: 'call', at: at * MS, id, lease: id, ...call };
    this.#calls.set(id, event);
    this.events.push(event);
    return id;
  }

  return(at: number, id: string, out: ReturnEvent['out'], more: Pick<ReturnEvent, 'token' | 'value'> = {}): void {
    const { worker } = this.#calls.get(id)!;
    this.events.push({ kind: 'return', at: at * MS, worker, id, out, ...more });
  }

  grant({ worker, call, grant, token, name = 'mutex-1', mode = 'mutex', ...weights }: Grant): string {
    const id = this.call(call, { worker, what: 'acquire', name, mode, ...weights });
    this.return(grant, id, 'ok', token === undefined ? {} : { token: `${token}` });
    return id;
  }

  held(lease: string, held: boolean, ...times: readonly number[]): void {
    const { worker } = this.#calls.get(lease)!;
    for (const at of times) this.events.push({ kind: 'held', at: at * MS, until: at * MS, worker, lease, held });
  }

  lost(lease: string, at: number): void {
    const { worker } = this.#calls.get(lease)!;
    this.events.push({ kind: 'lost', at: at * MS, worker, lease, reason: 'expired' });
  }

  /** By the holder of a lease: a release, or an access to what it protects. */
  does(lease: string, what: 'release' | 'read' | 'write' | 'count', times: Times, more: Doing): string {
    const { worker, name, mode } = this.#calls.get(lease)!;
    const { out, value, token } = more;
    const fence = token === undefined ? {} : { token: `${token}` };
    const written = what === 'write' && value !== undefined ? { value } : {};
    const id = this.call(times[0], { worker, what, name, mode, lease, ...fence, ...written });
    if (out) this.return(times[1], id, out, what === 'read' && value !== undefined ? { value } : {});
    return id;
  }

  line(at: number, held: readonly string[], waiting: readonly string[], name = 'mutex-1'): void {
    const claims = [
      ...held.map((lease) => ({ lease, state: 'held' }) as const),
      ...waiting.map((lease) => ({ lease, state: 'waiting' }) as const),
    ];
    this.events.push({ kind: 'line', at: at * MS, until: at * MS, name, claims });
  }

  fault(target: string, from: number, to = from, nemesis = 'stall', more: FaultCost = {}): void {
    const fault = { kind: 'fault', id: `f${this.events.length}`, nemesis, target, ...more } as const;
    const write = (at: number, what: FaultEvent['what']): number => this.events.push({ ...fault, at: at * MS, what });
    if (to === from) write(from, 'instant');
    else {
      write(from, 'begin');
      write(to, 'end');
    }
  }

  /** A server is cut off with some workers, and replaced. */
  isolation(isolated: readonly string[], from: number, to: number): void {
    const fault = { kind: 'fault', id: `f${this.events.length}`, nemesis: 'partition', target: 'server' } as const;
    this.events.push({ ...fault, at: from * MS, what: 'begin', isolated }, { ...fault, at: to * MS, what: 'end' });
  }

  phase(phase: PhaseEvent['phase'], at: number): void {
    this.events.push({ kind: 'phase', at: at * MS, phase });
  }

  leftover(what: LeftoverEvent['what']): void {
    this.events.push({ kind: 'leftover', at: 99_000 * MS, what, detail: 'something' });
  }

  counter(value: number): void {
    this.events.push({ kind: 'counter', at: 99_000 * MS, name: 'mutex-1', value });
  }
}

type FaultCost = Pick<FaultEvent, 'harmless' | 'only'>;

/** Call and return. */
type Times = readonly [number, number];

interface Doing {
  /** Absent: it never returned. */
  readonly out?: ReturnEvent['out'];
  readonly value?: number;
  readonly token?: number;
}
