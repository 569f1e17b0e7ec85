/**
 * What the locks of a run protect: fenced registers, kept by the coordinator, which no fault touches. A worker asks it
 * over its channel of messages. Also a naive lock, the negative control: it expires, and tells nobody.
 */

export type Request =
  | { readonly ask: 'read'; readonly name: string; readonly token: string | undefined; readonly shared: boolean }
  | { readonly ask: 'write'; readonly name: string; readonly token: string | undefined; readonly value: number }
  | { readonly ask: 'take'; readonly name: string; readonly owner: string; readonly ttlMs: number }
  | { readonly ask: 'drop'; readonly name: string; readonly owner: string };

export type Response = { readonly ok: true; readonly value: number; readonly token?: string } | { readonly ok: false };

interface Register {
  value: number;
  maxRead: bigint;
  maxWrite: bigint;
}

export class Resource {
  readonly #registers = new Map<string, Register>();
  readonly #slots = new Map<string, { readonly owner: string; readonly until: number }>();
  #count = 0n;

  answer(request: Request): Response {
    if (request.ask === 'read') return this.#read(request.name, request.token, request.shared);
    if (request.ask === 'write') return this.#write(request.name, request.token, request.value);
    if (request.ask === 'take') return this.#take(request.name, request.owner, request.ttlMs);
    return this.#drop(request.name, request.owner);
  }

  #read(name: string, token: string | undefined, shared: boolean): Response {
    const register = this.#register(name);
    return passes(register, token, shared) ? { ok: true, value: register.value } : { ok: false };
  }

  #write(name: string, token: string | undefined, value: number): Response {
    const register = this.#register(name);
    if (!passes(register, token, false)) return { ok: false };
    register.value = value;
    return { ok: true, value };
  }

  #take(name: string, owner: string, ttlMs: number): Response {
    const slot = this.#slots.get(name);
    const now = performance.now();
    if (slot && slot.until > now && slot.owner !== owner) return { ok: false };
    this.#slots.set(name, { owner, until: now + ttlMs });
    this.#count += 1n;
    return { ok: true, value: 0, token: `${this.#count}` };
  }

  #drop(name: string, owner: string): Response {
    if (this.#slots.get(name)?.owner !== owner) return { ok: false };
    this.#slots.delete(name);
    return { ok: true, value: 0 };
  }

  #register(name: string): Register {
    let register = this.#registers.get(name);
    if (!register) this.#registers.set(name, (register = { value: 0, maxRead: 0n, maxWrite: 0n }));
    return register;
  }
}

/**
 * A reader must be newer than every writer; whoever may write must not be older than one, and newer than every reader. Who
 * has no token can't be told from anybody else.
 */
function passes(register: Register, token: string | undefined, shared: boolean): boolean {
  if (token === undefined) return true;
  const presented = BigInt(token);
  if (shared) {
    if (presented <= register.maxWrite) return false;
    if (presented > register.maxRead) register.maxRead = presented;
    return true;
  }
  if (presented < register.maxWrite || presented <= register.maxRead) return false;
  register.maxWrite = presented;
  return true;
}
