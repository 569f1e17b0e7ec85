/**
 * A lock on paper: a line, sessions that expire, workers that stall, are killed and give up, and the history that they
 * would write. Nothing runs and no time passes. The lock is right by construction, so no checker may complain; the naive
 * one expires as well and tells nobody, so they must.
 */
import { ALL, Line, type Spot } from '../../src/core/line.js';
import { Random } from '../simulation/random.js';
import type { CallEvent, HistoryEvent, LineEvent, Mode, PhaseEvent, ReturnEvent } from './history.js';
import { registerModel, type RegisterState } from './register-model.js';
import { MS } from './run.js';
import { PROPERTIES } from './history.js';

export interface Paper {
  readonly seed: number;
  /** Which of them happen. */
  readonly faults: readonly ('stall' | 'short-stall' | 'kill' | 'hang')[];
  readonly naive?: boolean;
}

const TTL = 500 * MS;
const NAMES = ['mutex-1', 'write-1', 'semaphore-1', 'reentrant-1'];
const FAULTS_AT = 1_500 * MS;
const HEALED_AT = 6_000 * MS;
const ENDING_AT = 8_000 * MS;

interface Claim {
  readonly id: string;
  readonly worker: PaperWorker;
  readonly name: string;
  readonly mode: Mode;
  readonly weight: number;
  token: number;
  spot: Spot<Claim> | undefined;
  /** Its session expired. */
  gone: boolean;
  /** Its acquire has returned. */
  settled: boolean;
}

interface PaperWorker {
  readonly id: string;
  readonly seat: number;
  alive: boolean;
  stalledUntil: number;
  readonly claims: Set<Claim>;
}

interface Resource {
  readonly line: Line<Claim>;
  register: RegisterState;
  counter: number;
}

type Step = () => void;

export function paperHistory(paper: Paper): readonly HistoryEvent[] {
  return new PaperRun(paper).play();
}

class PaperRun {
  readonly #paper: Paper;
  readonly #random: Random;
  readonly #events: HistoryEvent[] = [];
  readonly #agenda: { readonly at: number; readonly order: number; readonly step: Step }[] = [];
  readonly #resources = new Map<string, Resource>();
  readonly #workers: PaperWorker[] = [];
  #now = 0;
  #hungUntil = 0;
  #ids = 0;
  #tokens = 0;

  constructor(paper: Paper) {
    this.#paper = paper;
    this.#random = new Random(paper.seed);
    for (const name of NAMES) {
      const capacity = name.startsWith('semaphore') ? 3 : ALL;
      this.#resources.set(name, { line: new Line(capacity), register: registerModel.initial, counter: 0 });
    }
  }

  play(): readonly HistoryEvent[] {
    this.#writeRun();
    for (let seat = 1; seat <= 4; seat += 1) this.#start(seat, 1);
    for (const [phase, at] of [
      ['calm', 0],
      ['faults', FAULTS_AT],
      ['healed', HEALED_AT],
    ] as const)
      this.#later(at, () => this.#phase(phase));
    this.#later(FAULTS_AT, () => this.#strike());
    this.#later(100 * MS, () => this.#look());
    this.#playOut();
    for (const { id, alive } of this.#workers)
      if (alive) this.#write({ kind: 'worker', at: this.#now, worker: id, what: 'ended' });
    for (const [name, { counter }] of this.#resources)
      this.#write({ kind: 'counter', at: this.#now, name, value: counter });
    this.#phase('over');
    return this.#events;
  }

  // --- time ---------------------------------------------------------------------------------------------------------

  #later(delay: number, step: Step): void {
    this.#agenda.push({ at: this.#now + Math.round(delay), order: (this.#ids += 1), step });
  }

  #playOut(): void {
    while (this.#agenda.length > 0) {
      let first = 0;
      for (let at = 1; at < this.#agenda.length; at += 1) {
        const [a, b] = [this.#agenda[at]!, this.#agenda[first]!];
        if (a.at < b.at || (a.at === b.at && a.order < b.order)) first = at;
      }
      const { at, step } = this.#agenda.splice(first, 1)[0]!;
      this.#now = Math.max(this.#now + 1, at);
      step();
    }
  }

  /** At the server, after the way there, and not while it hangs. */
  #atServer(step: Step): void {
    const arrive = (): void =>
      this.#now < this.#hungUntil ? this.#later(this.#hungUntil - this.#now, arrive) : step();
    this.#later(this.#way(), arrive);
  }

  /** At the worker, unless it is dead, and not while it stalls. */
  #atWorker(worker: PaperWorker, delay: number, step: Step): void {
    const arrive = (): void => {
      if (!worker.alive) return;
      if (this.#now < worker.stalledUntil) this.#later(worker.stalledUntil - this.#now + 1, arrive);
      else step();
    };
    this.#later(delay, arrive);
  }

  #way(): number {
    return this.#random.between(0.1, 2) * MS;
  }

  // --- workers ------------------------------------------------------------------------------------------------------

  #start(seat: number, life: number): void {
    const worker = { id: `w${seat}.${life}`, seat, alive: true, stalledUntil: 0, claims: new Set<Claim>() };
    this.#workers.push(worker);
    this.#write({ kind: 'worker', at: this.#now, worker: worker.id, what: 'started' });
    this.#atWorker(worker, this.#way(), () => this.#turn(worker));
    this.#atWorker(worker, this.#way(), () => this.#turn(worker));
  }

  #turn(worker: PaperWorker): void {
    if (this.#now > ENDING_AT) return;
    const name = this.#random.pick(NAMES);
    const mode = this.#modeOf(name);
    const weight = mode === 'semaphore' ? 1 + this.#random.int(3) : mode === 'read' ? 1 : ALL;
    const weights = mode === 'semaphore' ? { weight, capacity: 3 } : {};
    const id = this.#call(worker, { what: 'acquire', name, mode, ...weights });
    const claim: Claim = { id, worker, name, mode, weight, token: 0, spot: undefined, gone: false, settled: false };
    this.#atServer(() => this.#enter(claim));
    if (this.#random.chance(0.15)) this.#atWorker(worker, this.#random.between(1, 100) * MS, () => this.#giveUp(claim));
  }

  #modeOf(name: string): Mode {
    const mode = name.slice(0, name.indexOf('-')) as Mode;
    return mode === 'write' && this.#random.chance(0.7) ? 'read' : mode;
  }

  #giveUp(claim: Claim): void {
    if (claim.settled) return;
    this.#return(claim.id, claim.worker, 'aborted');
    claim.settled = true;
    this.#atServer(() => this.#leave(claim));
    this.#atWorker(claim.worker, 5 * MS, () => this.#turn(claim.worker));
  }

  #granted(claim: Claim): void {
    if (claim.settled || claim.gone) return;
    claim.settled = true;
    this.#return(claim.id, claim.worker, 'ok', { token: `${claim.token}` });
    this.#check(claim, claim.id);
    if (claim.mode === 'reentrant') this.#reenter(claim);
    if (claim.mode === 'semaphore') this.#soon(claim, () => this.#release(claim));
    else this.#read(claim);
  }

  /** What is inside shares the token of what is outside. */
  #reenter({ worker, name, mode, token }: Claim): void {
    const inner = this.#call(worker, { what: 'acquire', name, mode });
    this.#return(inner, worker, 'ok', { token: `${token}` });
    for (let check = 0; check < 2; check += 1)
      this.#write({
        kind: 'held',
        at: (this.#now += 1),
        until: this.#now,
        worker: worker.id,
        lease: inner,
        held: true,
      });
    const release = this.#call(worker, { what: 'release', name, mode, lease: inner });
    this.#return(release, worker, 'ok');
  }

  #read(claim: Claim): void {
    const { worker } = claim;
    this.#access(claim, 'read', undefined, (value) => {
      if (value === undefined || claim.mode === 'read') return this.#release(claim);
      const counted = this.#resource(claim).counter;
      this.#soon(claim, () => {
        const stall = this.#stallNow();
        const checkFirst = this.#random.chance(0.5);
        if (stall && !checkFirst) return this.#stall(worker, stall, () => this.#update(claim, counted, value));
        if (!this.#check(claim, claim.id)) return this.#release(claim);
        if (stall) return this.#stall(worker, stall, () => this.#countAndWrite(claim, counted, value));
        this.#countAndWrite(claim, counted, value);
      });
    });
  }

  #update(claim: Claim, counted: number, value: number): void {
    if (this.#check(claim, claim.id)) this.#countAndWrite(claim, counted, value);
    else this.#release(claim);
  }

  #countAndWrite(claim: Claim, counted: number, value: number): void {
    const { worker, name, mode, id } = claim;
    const count = this.#call(worker, { what: 'count', name, mode, lease: id });
    this.#resource(claim).counter = counted + 1;
    this.#return(count, worker, 'ok');
    this.#access(claim, 'write', value + 1, () => this.#release(claim));
  }

  /** Goes on with the value, or undefined if it was refused. */
  #access(claim: Claim, what: 'read' | 'write', written: number | undefined, then: (value?: number) => void): void {
    const { worker, name, mode, id: lease, token } = claim;
    const more = written === undefined ? {} : { value: written };
    const id = this.#call(worker, { what, name, mode, lease, token: `${token}`, ...more });
    this.#later(this.#way(), () => {
      const resource = this.#resource(claim);
      const value = written ?? resource.register.value;
      const asked = { what, reader: mode === 'read', token: BigInt(token), value, out: 'ok', call: 0, ret: 0 } as const;
      const after = registerModel.step(resource.register, asked);
      resource.register = after ?? resource.register;
      this.#atWorker(worker, this.#way(), () => {
        this.#return(id, worker, after ? 'ok' : 'stale', after && what === 'read' ? { value } : {});
        then(after ? value : undefined);
      });
    });
  }

  #release(claim: Claim): void {
    const { worker, name, mode, id: lease } = claim;
    this.#check(claim, lease);
    const id = this.#call(worker, { what: 'release', name, mode, lease });
    this.#atServer(() => {
      const kept = !claim.gone;
      this.#leave(claim);
      this.#atWorker(worker, this.#way(), () => {
        this.#return(id, worker, kept ? 'ok' : 'lost');
        this.#atWorker(worker, this.#random.between(0, 10) * MS, () => this.#turn(worker));
      });
    });
  }

  #check(claim: Claim, lease: string): boolean {
    const held = this.#paper.naive === true || !claim.gone;
    this.#write({ kind: 'held', at: this.#now, until: this.#now, worker: claim.worker.id, lease, held });
    this.#now += 1;
    return held;
  }

  #soon(claim: Claim, step: Step): void {
    this.#atWorker(claim.worker, this.#random.between(0, 8) * MS, step);
  }

  // --- the server ---------------------------------------------------------------------------------------------------

  #enter(claim: Claim): void {
    if (claim.settled || !claim.worker.alive || this.#now < claim.worker.stalledUntil) {
      // A session that stalls can't ask; it will when it wakes.
      if (!claim.settled) this.#atWorker(claim.worker, 0, () => this.#atServer(() => this.#enter(claim)));
      return;
    }
    claim.token = this.#tokens += 1;
    claim.gone = false;
    claim.worker.claims.add(claim);
    claim.spot = this.#resource(claim).line.enter(claim, claim.weight);
    if (claim.spot.held) this.#tell(claim);
  }

  #leave(claim: Claim): void {
    claim.worker.claims.delete(claim);
    const { spot } = claim;
    claim.spot = undefined;
    if (!spot) return;
    for (const { item } of this.#resource(claim).line.leave(spot)) this.#tell(item);
  }

  #tell(claim: Claim): void {
    const { token } = claim;
    this.#atWorker(claim.worker, this.#way(), () => {
      if (claim.token === token) this.#granted(claim);
    });
  }

  /** The session of a worker ends: its claims leave, held and waiting. */
  #expire(worker: PaperWorker): void {
    for (const claim of [...worker.claims]) {
      claim.gone = true;
      this.#leave(claim);
      if (!worker.alive) continue;
      this.#atWorker(worker, 0, () => {
        if (!claim.settled) this.#atServer(() => this.#enter(claim));
        else if (!this.#paper.naive)
          this.#write({ kind: 'lost', at: this.#now, worker: worker.id, lease: claim.id, reason: 'expired' });
      });
    }
  }

  #look(): void {
    for (const [name, { line }] of this.#resources) {
      const claims: LineEvent['claims'] = [...line].map(({ item, held }) => ({
        lease: item.id,
        state: held ? 'held' : 'waiting',
      }));
      if (claims.length > 0 && this.#now >= this.#hungUntil)
        this.#write({ kind: 'line', at: this.#now, until: this.#now, name, claims });
    }
    if (this.#now < ENDING_AT) this.#later(20 * MS, () => this.#look());
  }

  // --- faults -------------------------------------------------------------------------------------------------------

  #has(fault: Paper['faults'][number]): boolean {
    return this.#paper.faults.includes(fault);
  }

  #stallNow(): number {
    if (this.#now < FAULTS_AT || this.#now > HEALED_AT - 3 * TTL || !this.#random.chance(0.05)) return 0;
    if (this.#has('stall') && this.#random.chance(0.5)) return 2 * TTL;
    return this.#has('short-stall') ? TTL / 2 : 0;
  }

  #stall(worker: PaperWorker, length: number, then: Step): void {
    const fault = { kind: 'fault', id: `f${(this.#ids += 1)}`, nemesis: 'stall', target: worker.id } as const;
    this.#write({ ...fault, at: this.#now, what: 'begin' });
    const end = this.#now + length;
    worker.stalledUntil = end;
    if (length > TTL) this.#later(TTL, () => worker.alive && this.#expire(worker));
    this.#later(length, () => worker.alive && this.#write({ ...fault, at: this.#now, what: 'end' }));
    this.#atWorker(worker, length + 1, then);
  }

  #strike(): void {
    if (this.#now > HEALED_AT - 3 * TTL) return;
    if (this.#has('kill') && this.#random.chance(0.5)) this.#kill();
    if (this.#has('hang') && this.#random.chance(0.5)) this.#hang();
    this.#later(TTL, () => this.#strike());
  }

  #kill(): void {
    const worker = this.#random.pick(this.#workers.filter(({ alive }) => alive));
    const { id, seat } = worker;
    this.#write({
      kind: 'fault',
      at: this.#now,
      id: `f${(this.#ids += 1)}`,
      nemesis: 'kill',
      what: 'instant',
      target: id,
    });
    worker.alive = false;
    this.#later(MS, () => this.#write({ kind: 'worker', at: this.#now, worker: id, what: 'ended' }));
    this.#later(TTL, () => this.#expire(worker));
    this.#later(50 * MS, () => this.#start(seat, Number(id.split('.')[1]) + 1));
  }

  #hang(): void {
    const fault = { kind: 'fault', id: `f${(this.#ids += 1)}`, nemesis: 'hang', target: 'server' } as const;
    this.#write({ ...fault, at: this.#now, what: 'begin' });
    this.#hungUntil = this.#now + TTL / 2;
    this.#later(TTL / 2, () => this.#write({ ...fault, at: this.#now, what: 'end' }));
  }

  // --- history ------------------------------------------------------------------------------------------------------

  #resource({ name }: Claim): Resource {
    return this.#resources.get(name)!;
  }

  #call(
    worker: PaperWorker,
    what: Omit<CallEvent, 'kind' | 'at' | 'worker' | 'id' | 'lease'> & { lease?: string },
  ): string {
    const id = `${worker.id}-${(this.#ids += 1)}`;
    this.#write({ kind: 'call', at: (this.#now += 1), worker: worker.id, id, lease: id, ...what });
    return id;
  }

  #return(
    id: string,
    { id: worker }: PaperWorker,
    out: ReturnEvent['out'],
    more: Pick<ReturnEvent, 'token' | 'value'> = {},
  ): void {
    this.#write({ kind: 'return', at: (this.#now += 1), worker, id, out, ...more });
  }

  #phase(phase: PhaseEvent['phase']): void {
    this.#write({ kind: 'phase', at: this.#now, phase });
  }

  #writeRun(): void {
    const { seed, faults, naive } = this.#paper;
    const lock = naive ? 'naive' : 'holdfast';
    const setting = { engine: 'paper', lock, seed, ttlMs: TTL / MS, workers: 4, names: NAMES, nemeses: faults };
    this.#write({ kind: 'run', at: 0, ...setting, judged: PROPERTIES, versions: { paper: '1' } });
  }

  #write(event: HistoryEvent): void {
    this.#events.push(event);
  }
}
