/**
 * The keeper against an engine that does what it is told, on a clock that moves when it is told. Everything is seen as a
 * user sees it: through acquire and its lease.
 */
import { afterEach, beforeEach, expect } from 'vitest';
import type { IndexedClaim, Pulse } from '../../../../src/core/engine.js';
import type { LeaseLostError } from '../../../../src/core/errors.js';
import { Holdfast } from '../../../../src/index.js';
import type { Lease } from '../../../../src/locks/lease.js';
import { Pending, ScriptedEngine } from '../../scripted-engine.js';
import { settled, VirtualClock } from '../../virtual-clock.js';

export const TTL_MS = 9_000;
/** What is left of a ttl when the margin for drifting clocks is taken off. */
export const VALID_MS = TTL_MS * 0.9;
export const DEADLINE_MS = TTL_MS / 3;

export let engine: ScriptedEngine;
export let clock: VirtualClock;
export let locks: Holdfast;

/** Every test of the file begins with new ones. */
export function newForEachTest(): void {
  beforeEach(() => {
    engine = new ScriptedEngine();
    clock = new VirtualClock();
    locks = new Holdfast(engine, { clock, ttl: TTL_MS });
  });

  afterEach(async () => {
    engine.heal();
    const closing = locks.close();
    await clock.advance(TTL_MS);
    await closing;
  });
}

/** What became of a promise, without waiting for it. */
export class Outcome<T> {
  value: T | undefined;
  error: unknown;
  at: number | undefined;

  constructor(promise: Promise<T>) {
    promise.then(
      (value) => {
        this.value = value;
        this.at = clock.now();
      },
      (error: unknown) => {
        this.error = error;
        this.at = clock.now();
      },
    );
  }

  get pending(): boolean {
    return this.at === undefined;
  }
}

export function acquire(options: { timeout?: number; signal?: AbortSignal } = {}): Outcome<Lease> {
  return new Outcome(locks.mutex('m').acquire(options));
}

/** Lets time pass in small steps until it is so. */
export async function until(condition: () => boolean, withinMs: number): Promise<void> {
  const end = clock.now() + withinMs;
  await settled();
  while (!condition() && clock.now() < end) await clock.advance(Math.min(50, end - clock.now()));
  expect(condition(), `within ${withinMs} ms`).toBe(true);
}

export function held(id: string, token = 1n): IndexedClaim {
  return { id, line: { kind: 'lock', name: 'm' }, state: 'held', token };
}

export function lossOf(lease: Lease): unknown {
  return (lease.signal.reason as LeaseLostError | undefined)?.reason;
}

/** The next beat, and only that, answers this. */
export async function answerBeat(index: readonly IndexedClaim[]): Promise<void> {
  const { beats } = engine.session;
  const before = beats.length;
  engine.now({ beat: () => Promise.resolve(beats.length === before + 1 ? { alive: true, index } : { alive: true }) });
  await until(() => beats.length > before, TTL_MS);
  await settled();
}

/** Beats are on their way until they are answered. */
export async function beatInFlight(): Promise<Pending<Pulse>> {
  const reply = new Pending<Pulse>();
  const before = engine.session.beats.length;
  engine.now({ beat: () => reply.promise });
  await until(() => engine.session.beats.length > before, TTL_MS);
  return reply;
}
