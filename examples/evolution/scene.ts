/**
 * What happened, as it happened: who did what when, who was inside meanwhile, and what was measured in the end.
 *
 * Whoever is inside is known from the steps. So the picture shows two inside where two were, and nowhere else.
 */
import assert from 'node:assert/strict';

export type Lane = 'outside' | 'waits' | 'inside' | 'frozen';

export interface Step {
  readonly ms: number;
  readonly actor: string;
  readonly text: string;
  /** Of all actors, after this step. */
  readonly lanes: ReadonlyMap<string, Lane>;
}

/** ✗ the lock is broken · ✓ it is not · ○ what this lock leaves to others */
export type Mark = '✗' | '✓' | '○';

export interface Finding {
  readonly mark: Mark;
  readonly text: string;
}

export class Scene {
  readonly steps: Step[] = [];
  readonly findings: Finding[] = [];
  /** The most actors that were inside at the same time. Who is frozen does nothing, so it does not count. */
  mostInside = 0;
  #startedAt: number | undefined;
  readonly #lanes = new Map<string, Lane>();

  /** In the order of the picture's columns. */
  actors(...names: readonly string[]): Actor[] {
    for (const name of names) this.#lanes.set(name, 'outside');
    return names.map((name) => new Actor(this, name));
  }

  note(actor: string, text: string, lane?: Lane): void {
    if (lane !== undefined) this.#lanes.set(actor, lane);
    const lanes = new Map(this.#lanes);
    this.#startedAt ??= performance.now();
    this.steps.push({ ms: performance.now() - this.#startedAt, actor, text, lanes });
    this.mostInside = Math.max(this.mostInside, insideIn(lanes));
  }

  /** Each sentence comes with its measurement. If that is not what the sentence says, the chapter fails. */
  broken(text: string, measured: unknown, expected: unknown = true): void {
    this.#find('✗', text, measured, expected);
  }

  holds(text: string, measured: unknown, expected: unknown = true): void {
    this.#find('✓', text, measured, expected);
  }

  leavesOpen(text: string, measured: unknown, expected: unknown = true): void {
    this.#find('○', text, measured, expected);
  }

  #find(mark: Mark, text: string, measured: unknown, expected: unknown): void {
    assert.deepEqual(measured, expected, `"${text}" was not seen`);
    this.findings.push({ mark, text });
  }
}

export class Actor {
  readonly #scene: Scene;
  readonly #name: string;

  constructor(scene: Scene, name: string) {
    this.#scene = scene;
    this.#name = name;
  }

  does(text: string): void {
    this.#scene.note(this.#name, text);
  }

  waits(text: string): void {
    this.#scene.note(this.#name, text, 'waits');
  }

  enters(text: string): void {
    this.#scene.note(this.#name, text, 'inside');
  }

  /** Inside, and does not run. */
  freezes(text: string): void {
    this.#scene.note(this.#name, text, 'frozen');
  }

  leaves(text: string): void {
    this.#scene.note(this.#name, text, 'outside');
  }
}

export function insideIn(lanes: ReadonlyMap<string, Lane>): number {
  return [...lanes.values()].filter((lane) => lane === 'inside').length;
}

/** A number that differs from run to run, so that the pages are not held to it. */
export function about(value: number): string {
  return `~${Math.round(value).toLocaleString('en')}`;
}
