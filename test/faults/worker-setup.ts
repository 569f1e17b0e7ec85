/** What the coordinator and its workers say to each other. */
import type { Mode } from './history.js';
import type { Request, Response } from './resource.js';
import type { Routes } from '../servers/routes.js';

/** Ours, the negative control, and the peers. */
export type LockKind = 'holdfast' | 'naive' | 'redlock' | 'redis-semaphore';

export interface WorkerSetup {
  readonly worker: string;
  readonly lock: LockKind;
  readonly url: string;
  /** Where its connections go through proxies that its URL does not name. */
  readonly routes?: Routes;
  /** Where the peers are installed. */
  readonly peers: string;
  readonly namespace: string;
  readonly ttlMs: number;
  readonly seed: number;
  readonly history: string;
  /** What the locks protect, if it is not kept by the coordinator; without its fence if the lock is the control. */
  readonly guardedUrl?: string;
  /** Where the unfenced counters are. */
  readonly folder: string;
  readonly names: readonly string[];
  /** Nobody else can see the lines: this process has to look at them itself. */
  readonly observes: boolean;
  /** Of the lock, in this process; loops take turns on them. */
  readonly instances: number;
  /** Loops at once in this process. */
  readonly lanes: number;
  /** How often a holder blocks its event loop for twice the ttl while faults are on. */
  readonly stalls: number;
}

export type ToWorker =
  | { readonly tell: 'faults'; readonly on: boolean }
  /** So many waiters come, and go before they are served. */
  | { readonly tell: 'crowd'; readonly waiters: number }
  | { readonly tell: 'end' }
  | { readonly tell: 'answer'; readonly call: number; readonly response: Response };

export type FromWorker =
  | { readonly say: 'ready' }
  | { readonly say: 'ask'; readonly call: number; readonly request: Request }
  /** It was granted a lock, and reads what that protects, elsewhere. */
  | { readonly say: 'served' }
  /** Closed; what still keeps the process alive. */
  | { readonly say: 'closed'; readonly handles: readonly string[] };

/** A name says how it is used: `mutex-1`. */
export function modeOf(name: string): Exclude<Mode, 'read'> {
  return name.slice(0, name.indexOf('-')) as Exclude<Mode, 'read'>;
}

export const PERMITS = 3;
