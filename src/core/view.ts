import type { EngineClaim, EngineLine, LineKind } from './engine.js';
import { usersToken } from './token.js';

/** A line as people and tools see it. `JSON.stringify` writes its tokens as strings. */
export interface LineView {
  readonly name: string;
  /** Mutex, read and write lock of one name are one `lock`; a semaphore of that name is another line. */
  readonly kind: LineKind;
  readonly capacity: number;
  /** In line order: those that hold first. */
  readonly claims: readonly ClaimView[];
  toJSON(): object;
}

export interface ClaimView {
  /** For `evict`. */
  readonly id: string;
  readonly state: 'held' | 'waiting';
  readonly weight: number;
  /** The fencing token, in the user's scale. Absent for a waiter on engines that mint it with the grant. */
  readonly token: bigint | undefined;
  /** The application's label, host and pid. */
  readonly label: string;
  readonly session: string;
  /** Since when it stands in line: epoch milliseconds by the engine's clock. */
  readonly since: number;
  /** How many of its instance wait behind it; known for claims of the instance that looks. */
  readonly local?: number;
  /** Claims of one session with the same task belong to nested runs: a cycle across processes shows up here. */
  readonly task?: number;
  /** What an election's candidate campaigns with. */
  readonly value?: string;
}

/** What the core writes into a claim's note. */
export interface Note {
  readonly label: string;
  readonly task?: number | undefined;
  readonly value?: string | undefined;
}

/** What only the looking instance knows of its own claims. */
export type LocalView = (claimId: string) => { local: number; token: bigint | undefined } | undefined;

export function lineView(line: EngineLine, localView: LocalView): LineView {
  const { name, kind, capacity } = line;
  return withJson({ name, kind, capacity, claims: line.claims.map((claim) => claimView(claim, localView)) });
}

export function emptyLineView(name: string, kind: LineKind, capacity: number): LineView {
  return withJson({ name, kind, capacity, claims: [] });
}

function claimView(claim: EngineClaim, localView: LocalView): ClaimView {
  const { id, state, weight, since } = claim;
  const own = localView(id);
  const note = readNote(claim.note);
  const token = own?.token ?? (claim.token === undefined ? undefined : usersToken(claim.token, 0));
  return withTokenAsText({
    id,
    state,
    weight,
    token,
    label: note.label,
    session: id.slice(0, Math.max(0, id.lastIndexOf('-'))),
    since,
    ...(own && { local: own.local }),
    ...(note.task !== undefined && { task: note.task }),
    ...(note.value !== undefined && { value: note.value }),
  });
}

/** Claims of other libraries, or of other versions of this one, may carry anything. */
function readNote(text: string | undefined): Note {
  try {
    const { label, task, value } = JSON.parse(text ?? '') as Record<keyof Note, unknown>;
    if (typeof label === 'string') {
      return {
        label,
        task: typeof task === 'number' ? task : undefined,
        value: typeof value === 'string' ? value : undefined,
      };
    }
  } catch {
    // Shown as unknown.
  }
  return { label: 'unknown' };
}

function withJson(view: Omit<LineView, 'toJSON'>): LineView {
  return hidden(view, 'toJSON', () => ({ ...view })) as LineView;
}

/** JSON has no bigint: `JSON.stringify` writes the token as text. */
export function withTokenAsText<T extends { readonly token: bigint | undefined }>(view: T): T {
  return hidden(view, 'toJSON', () => ({ ...view, token: view.token?.toString() }));
}

/** With a property that is not seen when the object is listed, copied or compared. */
function hidden<T extends object>(target: T, key: string, value: unknown): T {
  return Object.defineProperty(target, key, { value, enumerable: false });
}
