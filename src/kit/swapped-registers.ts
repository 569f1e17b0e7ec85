/**
 * Registers on a system that keeps text under a name and can swap it: "put this, if nobody has changed it since I read it".
 *
 *     look ─▶ text, version ─▶ judge the token ─▶ swap ─▶ done
 *      ▲                                           │
 *      └────────── somebody else was quicker ◀─────┘
 *
 * The text is JSON: value, token, when it was written, and the fence, the highest token that a reader and a writer has
 * shown; tokens as text, because they pass 2^53. No judgement is ever made of anything but the text that is swapped, so an
 * older token can't slip in between. Each round somebody gets through, if not we.
 *
 * What can go wrong: a swap is carried out and its answer lost. The next look sees it, and changes nothing more.
 * The system need not tell the time: the age is by the clocks of the processes that wrote and read it.
 */
import type { Clock } from '../core/clock.js';
import type { Fence, Fenced, RegisterEntry, Registers } from '../core/engine.js';
import { EngineError, quote } from '../core/errors.js';
import { isStale, newest } from '../core/fence.js';
import { foreignBigint, foreignFields } from './foreign-json.js';

export interface SwappedTexts<Version> {
  /** As new as whatever was written before it was asked. Undefined: there is none. */
  look(name: string): Promise<SeenText<Version> | undefined>;
  /** Replaces what was seen; undefined: there was none. False: it is not like that any more, look again. */
  swap(name: string, seen: Version | undefined, text: string, kept: Kept): Promise<boolean>;
}

/** For how long a text is kept: so many milliseconds from now on, or for as long as the one that it replaces. */
export type Kept = number | 'for ever' | 'as before';

export interface SeenText<Version> {
  readonly text: string;
  /** Another after every change. */
  readonly version: Version;
}

interface StoredRegister {
  readonly value: string | undefined;
  readonly token: bigint;
  /** Epoch milliseconds by the writer's clock. */
  readonly at: number;
  readonly maxRead: bigint;
  readonly maxWrite: bigint;
}

/** Each time somebody else got through; or a system says so that is none. */
const MOST_TRIES = 1_000;

const EMPTY: StoredRegister = { value: undefined, token: 0n, at: 0, maxRead: 0n, maxWrite: 0n };

export class SwappedRegisters<Version> implements Registers {
  readonly #texts: SwappedTexts<Version>;
  readonly #clock: Clock;

  constructor(texts: SwappedTexts<Version>, clock: Clock) {
    this.#texts = texts;
    this.#clock = clock;
  }

  async read(name: string, fence?: Fence): Promise<Fenced<RegisterEntry | undefined>> {
    const opened = fence
      ? await this.#change(name, 'as before', (register) => present(register, fence))
      : { ok: true as const, value: parse(name, (await this.#texts.look(name))?.text) };
    if (!opened.ok) return opened;
    const { value, token, at } = opened.value;
    if (value === undefined) return { ok: true, value: undefined };
    return { ok: true, value: { value, token, ageMs: this.#clock.wall() - at } };
  }

  async write(name: string, value: string, token: bigint, keepMs?: number): Promise<Fenced<void>> {
    const written = await this.#change(name, keepMs ?? 'for ever', (register) => {
      const opened = present(register, { token, mode: 'write' });
      return opened && { ...opened, value, token, at: this.#clock.wall() };
    });
    return written.ok ? { ok: true, value: undefined } : written;
  }

  /** The register as it is then; not ok: `to` gives nothing, so it stays as it is. Repeating it changes nothing more. */
  async #change(
    name: string,
    kept: Kept,
    to: (register: StoredRegister) => StoredRegister | undefined,
  ): Promise<Fenced<StoredRegister>> {
    for (let attempt = 0; attempt < MOST_TRIES; attempt += 1) {
      const seen = await this.#texts.look(name);
      const register = parse(name, seen?.text);
      const changed = to(register);
      if (!changed) return { ok: false, newest: newest(register.maxRead, register.maxWrite) };
      if (changed === register || (await this.#texts.swap(name, seen?.version, print(changed), kept)))
        return { ok: true, value: changed };
    }
    throw new EngineError(`Register ${quote(name)} was changed by somebody else at each of ${MOST_TRIES} looks.`);
  }
}

/** Undefined: the token is stale. */
function present(register: StoredRegister, fence: Fence): StoredRegister | undefined {
  const { maxRead, maxWrite } = register;
  const { token, mode } = fence;
  if (isStale(fence, maxRead, maxWrite)) return undefined;
  if (mode === 'read') return token > maxRead ? { ...register, maxRead: token } : register;
  return token > maxWrite ? { ...register, maxWrite: token } : register;
}

function print(register: StoredRegister): string {
  return JSON.stringify(register, (_key, field: unknown) => (typeof field === 'bigint' ? `${field}` : field));
}

/** Where something else stands nothing is known of older tokens, so nothing may be judged or overwritten. */
function parse(name: string, json: string | undefined): StoredRegister {
  if (json === undefined) return EMPTY;
  const { value, at, ...tokens } = foreignFields(json);
  const [token, maxRead, maxWrite] = [tokens['token'], tokens['maxRead'], tokens['maxWrite']].map(foreignBigint);
  if (token === undefined || maxRead === undefined || maxWrite === undefined || typeof at !== 'number')
    throw new EngineError(
      `Register ${quote(name)} holds something that Holdfast did not write. Find out who did, and delete it.`,
      { retryable: false },
    );
  return { value: typeof value === 'string' ? value : undefined, token, at, maxRead, maxWrite };
}
