/**
 * Plays steps on a real server and on the model, and compares what both say.
 *
 * Who died is out of the model at once, on the server only when somebody comes by. So the first batch after a death may
 * differ in these: a claim behind a dead holder may still wait when asked again; a grant that the model sees, but whose
 * claim leaves in the same batch, may never happen; a dead session may still leave what it had.
 */
import { expect } from 'vitest';
import type { Claim, Engine, IndexedClaim, Pulse, Session } from '../../../src/core/engine.js';
import type { Batch, Operation } from './rule-steps.js';
import { LINES, pick, SESSIONS } from './rule-steps.js';
import { keyOf, type ModelClaim, type ModelPlace, RuleModel } from './rule-model.js';

interface Member {
  readonly id: string;
  readonly session: Session;
  readonly engine: number;
}

interface Entered {
  readonly member: Member;
  readonly claim: Claim;
}

/** What the numbers of an operation chose: a session, any claim, and one of the same engine. */
interface Chosen {
  readonly member: Member;
  readonly any: Entered | undefined;
  readonly own: Entered | undefined;
}

export class Stage {
  readonly #engines: readonly Engine[];
  readonly #model = new RuleModel();
  readonly #members: Member[] = [];
  /** All that ever entered or tried to. */
  readonly #entered: Entered[] = [];
  readonly #grants = new Ledger();
  readonly #losses = new Ledger();
  readonly #toldTokens = new Map<string, bigint>();
  readonly #newestTokens = new Map<string, bigint>();
  /** Since the last look at the lines: whether somebody died, and whom the model granted because of it. */
  #deaths = false;
  #inherited: ModelClaim[] = [];
  #proofs = 0;

  constructor(engines: readonly Engine[]) {
    this.#engines = engines;
  }

  async open(engine: number, kind: number): Promise<void> {
    const { ttlMs, leaps } = pick(SESSIONS, kind)!;
    const id = `session-${this.#members.length}`;
    const session = await this.#engines[engine]!.open(
      { id, realm: '', ttlMs, label: id },
      {
        granted: (claimId, token) => {
          this.#grants.told(claimId);
          this.#toldTokens.set(claimId, token);
        },
        lost: (claimId, loss) => this.#losses.told(`${claimId} ${JSON.stringify(loss)}`),
        ended: () => this.#losses.told('a whole session'),
        hinted: () => this.#losses.told(hintTo(id)),
      },
    );
    this.#model.open(id, leaps);
    this.#members.push({ id, session, engine });
  }

  leap(): void {
    const before = this.#model.held();
    const living = this.#members.filter(({ id }) => this.#model.lives(id));
    this.#model.leap();
    this.#deaths ||= living.some(({ id }) => !this.#model.lives(id));
    this.#inherited.push(...without(this.#model.held(), before));
  }

  /** All of it is asked for in one turn, so it goes to the server as one script call. */
  async perform(batch: Batch): Promise<void> {
    if (!this.#members.some(({ id, engine }) => engine === batch.engine && this.#model.lives(id)))
      await this.open(batch.engine, this.#members.length);
    const play = new Play(this.#engines[batch.engine]!, this.#deaths, this.#inherited);
    const members = this.#members.filter(({ engine }) => engine === batch.engine);
    for (const operation of batch.operations) this.#issue(operation, members, play);
    await Promise.all(play.answers);
    for (const granted of play.granted) {
      const stands = this.#model.find(granted.claim.id) === granted;
      const heard =
        !play.closed.has(granted.session) && !play.settled.has(granted.claim.id) && (stands || !play.deaths);
      this.#grants.expect(granted.claim.id, heard);
      // One that has entered again since awaits another nonce: the message about its first grant is only a hint to it.
      if (play.settled.has(granted.claim.id)) this.#losses.expect(hintTo(granted.session), false);
    }
    for (const { text, session } of play.lost) this.#losses.expect(text, !play.closed.has(session));
    this.#deaths = false;
    this.#inherited = [];
    await this.#compareLines(play);
    await this.#settle();
    this.#compareTokens(play);
  }

  /** Everybody goes. */
  async end(): Promise<void> {
    await this.perform({ engine: 0, operations: [] });
    await this.#awaitMessages();
    this.#grants.compare('grants');
    this.#losses.compare('losses');
    await Promise.all(this.#members.map(({ session }) => session.close()));
  }

  /** Mostly of those who live and of what stands, sometimes of those who are gone and of what is over. */
  #issue(operation: Operation, members: readonly Member[], play: Play): void {
    const before = this.#model.held();
    const living = members.filter(({ id }) => this.#model.lives(id));
    const recent = this.#entered.slice(-6);
    const ids = this.#model.standing();
    const standing = this.#entered.filter(({ claim }) => ids.has(claim.id));
    const claims = [...standing, ...standing, ...recent];
    const own = claims.filter(({ member }) => members.includes(member));
    const answered = this.#play(
      operation,
      {
        member: pick([...living, ...living, ...living, ...members.slice(-2)], operation.session)!,
        any: pick(claims, operation.claim),
        own: pick(own, operation.claim),
      },
      play,
    );
    play.granted.push(...without(this.#model.held(), before).filter(({ claim }) => claim.id !== answered));
  }

  /** Gives the new claim whose grant the answer tells. */
  #play(operation: Operation, chosen: Chosen, play: Play): string | undefined {
    const { member, own } = chosen;
    if (operation.do === 'enter') return this.#enter({ member, claim: this.#newClaim(operation) }, play, true);
    if (operation.do === 'enterAgain') return own && this.#enter(own, play, false);
    this.#playOther(operation, operation.do, chosen, play);
    return undefined;
  }

  #playOther(
    operation: Operation,
    action: Exclude<Operation['do'], 'enter' | 'enterAgain'>,
    { member, any, own }: Chosen,
    play: Play,
  ): void {
    const foreign = any?.member === member ? undefined : any;
    switch (action) {
      case 'leave':
        if (own) this.#leave(own.member, own.claim, play);
        break;
      case 'leaveForeign':
        if (foreign) this.#leave(member, foreign.claim, play);
        break;
      case 'reweigh':
        if (own) this.#reweigh(own.member, own.claim, operation.weight, play);
        break;
      case 'reweighForeign':
        if (foreign) this.#reweigh(member, foreign.claim, operation.weight, play);
        break;
      case 'beat':
        this.#beat(member, operation, play);
        break;
      case 'evict':
        if (any) this.#evict(any, operation, play);
        break;
      case 'close':
        this.#close(member, play);
        break;
    }
  }

  #close({ id, session }: Member, play: Play): void {
    play.closed.add(id);
    this.#model.close(id);
    play.answers.push(session.close());
  }

  #newClaim({ line, weight, capacity, wait }: Operation): Claim {
    const { ref, capacities, weights } = pick(LINES, line)!;
    const number = this.#entered.length + 1;
    return {
      id: `claim-${number}`,
      line: ref,
      // Every other serial is so large that two of them pass 2^32.
      serial: number % 2 === 0 ? number : 2 ** 31 + number,
      weight: pick(weights, weight)!,
      capacity: pick(capacities, capacity)!,
      wait,
      note: `note\nof ${number}`,
    };
  }

  #enter({ member, claim }: Entered, play: Play, isNew: boolean): string | undefined {
    if (isNew) this.#entered.push({ member, claim });
    else play.settled.add(claim.id);
    const known = this.#model.find(claim.id);
    const expected = this.#model.enter(member.id, claim);
    const stands = this.#model.find(claim.id);
    const capacity = this.#model.capacityOf(claim.line);
    const entered = !known && stands ? { standing: stands, token: undefined as bigint | undefined } : undefined;
    if (entered) play.entered.push(entered);
    const mayWait = play.deaths && known !== undefined;
    const check = async (): Promise<void> => {
      const place = await member.session.enter(claim);
      const allowed: ModelPlace[] = mayWait && expected === 'held' ? ['held', 'waiting'] : [expected];
      expect(allowed, `the place of ${claim.id}`).toContain(place.state);
      if (place.state === 'mismatch') expect(place.capacity).toBe(capacity);
      if (place.state !== 'held') return;
      if (entered) entered.token = place.token;
      else play.tokens.push({ standing: stands!, token: place.token });
    };
    play.answers.push(check());
    return expected === 'held' && !known ? claim.id : undefined;
  }

  #leave(member: Member, claim: Claim, play: Play): void {
    play.settled.add(claim.id);
    const mayExist = play.deaths && !this.#model.lives(member.id);
    const existed = this.#model.leave(member.id, claim.id);
    const check = async (): Promise<void> => {
      const answer = await member.session.leave(claim);
      if (!mayExist) expect(answer, `whether ${claim.id} stood there`).toBe(existed);
    };
    play.answers.push(check());
  }

  #reweigh(member: Member, claim: Claim, number: number, play: Play): void {
    const weight = pick(LINES.find(({ ref }) => keyOf(ref) === keyOf(claim.line))!.weights, number)!;
    this.#model.reweigh(member.id, claim.id, weight);
    play.answers.push(member.session.reweigh({ ...claim, weight }));
  }

  #beat(member: Member, { unsettled, count, held, checksum }: Operation, play: Play): void {
    // Also ids of others, and ids that never reached the server: a roster may name any claim with a call in flight.
    const ids = [...new Set(unsettled.map((number) => pick(this.#entered, number)?.claim.id ?? 'never-sent'))];
    const truth = this.#model.roster(member.id, ids);
    const roster = {
      count: truth.count + count,
      held: truth.held + held,
      checksum: (truth.checksum + checksum) >>> 0,
      unsettled: ids,
    };
    const alive = this.#model.beat(member.id);
    const own = this.#model.claimsOf(member.id);
    for (const { claim, evicted } of own) {
      if (evicted !== undefined) play.lost.push({ text: lossText(claim.id, evicted), session: member.id });
    }
    const differs = count !== 0 || held !== 0 || checksum !== 0;
    const index = differs ? own.map((one) => ({ standing: one, holds: this.#model.holds(one.claim.id) })) : undefined;
    const check = async (): Promise<void> => comparePulse(await member.session.beat(roster), alive && { index }, play);
    play.answers.push(check());
  }

  #evict({ member, claim }: Entered, { wait: rightLine, weight }: Operation, play: Play): void {
    const reason = `reason ${weight}`;
    const stood = rightLine && this.#model.evict(claim.id, reason);
    // Only a reason to look; the beat tells why.
    if (stood) play.lost.push({ text: hintTo(member.id), session: member.id });
    const check = async (): Promise<void> => {
      const name = rightLine ? claim.line.name : 'another line';
      expect(await play.engine.evict!(name, claim.id, reason), `evict ${claim.id}`).toBe(stood);
    };
    play.answers.push(check());
  }

  // --- comparing ------------------------------------------------------------------------------------------------

  async #compareLines(play: Play): Promise<void> {
    const lines = [];
    for await (const { kind, name, capacity, claims } of this.#engines[0]!.inspect!({})) {
      for (const { id, token } of claims) play.seen.set(id, token!);
      const shown = claims.map(({ id, state, weight, note }) => ({ id, state, weight, note: note! }));
      lines.push({ key: keyOf({ kind, name }), capacity, claims: shown });
      const tokens = claims.map(({ token }) => token!);
      expect(
        [...tokens].sort((a, b) => (a < b ? -1 : 1)),
        'tokens grow along the line',
      ).toEqual(tokens);
    }
    expect(lines.sort((a, b) => (a.key < b.key ? -1 : 1))).toEqual(this.#model.view());
  }

  async #settle(): Promise<void> {
    if (!this.#grants.complete || !this.#losses.complete) await this.#awaitMessages();
    this.#grants.compare('grants');
    this.#losses.compare('losses');
  }

  /** A new subscription on the same connection proves that no message is still on its way. */
  async #awaitMessages(): Promise<void> {
    const deaf = { granted: () => {}, lost: () => {}, ended: () => {}, hinted: () => {} };
    for (const engine of this.#engines) {
      this.#proofs += 1;
      const id = `proof-${this.#proofs}`;
      const session = await engine.open({ id, realm: '', ttlMs: SESSIONS[0].ttlMs, label: id }, deaf);
      await session.close();
    }
  }

  #compareTokens({ entered, tokens, seen, granted, settled }: Play): void {
    const current = ({ claim }: ModelClaim, standing: ModelClaim): boolean => this.#model.find(claim.id) === standing;
    for (const { standing, token } of entered) {
      const { id, line } = standing.claim;
      const stands = current(standing, standing);
      const known = token ?? (stands ? seen.get(id) : undefined);
      if (known === undefined) continue;
      if (stands) expect(seen.get(id), `the token of ${id} stays`).toBe(known);
      const key = keyOf(line);
      expect(known, `a later claim (${id}) has a larger token`).toBeGreaterThan(this.#newestTokens.get(key) ?? 0n);
      this.#newestTokens.set(key, known);
    }
    for (const { standing, token } of tokens) {
      const { id } = standing.claim;
      if (current(standing, standing)) expect(seen.get(id), `the token of ${id} stays`).toBe(token);
    }
    for (const standing of granted) {
      const { id } = standing.claim;
      if (!current(standing, standing) || settled.has(id)) continue;
      expect(this.#toldTokens.get(id), `the grant of ${id} is told with its token`).toBe(seen.get(id));
    }
  }
}

/** What one batch asked for and what is to be true of it. */
class Play {
  readonly answers: Promise<unknown>[] = [];
  /** Who holds now and is to be told. */
  readonly granted: ModelClaim[];
  readonly lost: { readonly text: string; readonly session: string }[] = [];
  /** They may hear what happened in the same batch, or not. */
  readonly closed = new Set<string>();
  /** Claims that were left or entered again: who has the answer to that may not care for a message any more. */
  readonly settled = new Set<string>();
  readonly entered: { readonly standing: ModelClaim; token: bigint | undefined }[] = [];
  readonly tokens: { readonly standing: ModelClaim; readonly token: bigint }[] = [];
  readonly seen = new Map<string, bigint>();
  readonly engine: Engine;
  readonly deaths: boolean;

  constructor(engine: Engine, deaths: boolean, inherited: readonly ModelClaim[]) {
    this.engine = engine;
    this.deaths = deaths;
    this.granted = [...inherited];
  }
}

/** How often something was told, and how often it had to be: some of it for certain, some of it perhaps. */
class Ledger {
  readonly #entries = new Map<string, { told: number; certain: number; perhaps: number }>();

  told(what: string): void {
    this.#entry(what).told += 1;
  }

  expect(what: string, certain: boolean): void {
    this.#entry(what)[certain ? 'certain' : 'perhaps'] += 1;
  }

  get complete(): boolean {
    return [...this.#entries.values()].every(({ told, certain }) => told >= certain);
  }

  compare(what: string): void {
    const wrong = [...this.#entries].filter(
      ([, { told, certain, perhaps }]) => told < certain || told > certain + perhaps,
    );
    expect(Object.fromEntries(wrong), `${what} that were not told exactly once`).toEqual({});
  }

  #entry(what: string): { told: number; certain: number; perhaps: number } {
    const known = this.#entries.get(what) ?? { told: 0, certain: 0, perhaps: 0 };
    this.#entries.set(what, known);
    return known;
  }
}

function comparePulse(
  pulse: Pulse,
  expected: false | { index: { standing: ModelClaim; holds: boolean }[] | undefined },
  play: Play,
): void {
  expect(pulse.alive).toBe(expected !== false);
  if (!pulse.alive || expected === false) return;
  const wanted = expected.index?.map(({ standing: { claim }, holds }) => ({
    id: claim.id,
    line: claim.line,
    state: holds ? ('held' as const) : ('waiting' as const),
  }));
  expect(shown(pulse.index), 'the index').toEqual(shown(wanted));
  for (const { id, token } of pulse.index ?? []) {
    const { standing } = expected.index!.find((one) => one.standing.claim.id === id)!;
    if (token !== undefined) play.tokens.push({ standing, token });
  }
}

function shown(index: readonly Omit<IndexedClaim, 'token'>[] | undefined): string[] | undefined {
  return index?.map(({ id, line, state }) => `${id} ${keyOf(line)} ${state}`).sort();
}

function hintTo(session: string): string {
  return `a hint to ${session}`;
}

function lossText(id: string, reason: string): string {
  return `${id} ${JSON.stringify({ reason: 'evicted', detail: reason })}`;
}

function without(claims: readonly ModelClaim[], known: readonly ModelClaim[]): ModelClaim[] {
  return claims.filter((claim) => !known.includes(claim));
}
