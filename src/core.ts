/** `holdfast/core`: Holdfast over an engine that is handed in. Without URLs, a bundle has no engine but that one. */
export type { Clock, Timer } from './core/clock.js';
export type { Duration } from './core/duration.js';
export type * from './core/engine.js';
export {
  AcquireTimeoutError,
  type Blocker,
  CapacityError,
  ClosedError,
  ConfigError,
  DeadlockError,
  EngineError,
  HoldfastError,
  LeaseLostError,
  type Loss,
  type LossReason,
  StaleTokenError,
  UnsupportedError,
} from './core/errors.js';
export type { Schema } from './kit/schema.js';
export type {
  AcquireMessage,
  BeatMessage,
  GrantedMessage,
  GuardMessage,
  LostMessage,
  OutageMessage,
  ReleaseMessage,
} from './core/telemetry.js';
export type { ClaimView, LineView } from './core/view.js';
export type { AllLock, Leases } from './locks/all.js';
export type { CampaignOptions, Election, Leader, Term } from './locks/election.js';
export type { Lease, WriteLease } from './locks/lease.js';
export type { AcquireOptions, Lock, TryOptions } from './locks/lock.js';
export type { OnceOptions, OnceResult } from './locks/once.js';
export type { Register, RegisterValue } from './locks/register.js';
export type { RwLock } from './locks/rw-lock.js';
export {
  type CloseOptions,
  Holdfast,
  type HoldfastOptions,
  type InspectOptions,
  type ReadyOptions,
  type Stats,
} from './holdfast.js';
