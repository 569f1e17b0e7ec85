/**
 * What happens inside, on `node:diagnostics_channel`. Free while nobody listens. Messages carry names, labels and
 * tokens; never a URL, a password or a session id that could be used to end somebody's session.
 */
import { channel, tracingChannel } from 'node:diagnostics_channel';
import type { EngineError, Loss } from './errors.js';
import { outside } from './outside.js';
import { withTokenAsText } from './view.js';

export interface AcquireMessage {
  readonly name: string;
  readonly kind: string;
  readonly label: string;
}

export interface GrantedMessage extends AcquireMessage {
  readonly token: bigint;
  /** From the call to the grant. */
  readonly waitedMs: number;
}

export interface LostMessage {
  readonly name: string;
  readonly kind: string;
  readonly token: bigint;
  readonly loss: Loss;
}

export interface ReleaseMessage {
  readonly name: string;
  readonly kind: string;
  readonly token: bigint;
}

export interface OutageMessage {
  readonly name: string;
  readonly kind: string;
  /** What the engine, or the way to it, said last. */
  readonly error: EngineError;
}

/** A server that may have lost its memory grants nothing for a while. */
export interface GuardMessage {
  readonly state: 'begun' | 'ended';
  /** What and where it is, without credentials. */
  readonly engine: string;
  readonly endsInMs: number;
}

export interface BeatMessage {
  readonly claims: number;
}

const acquire = tracingChannel<unknown, AcquireMessage>('holdfast:acquire');
const release = tracingChannel<unknown, ReleaseMessage>('holdfast:release');
const beat = tracingChannel<unknown, BeatMessage>('holdfast:beat');
const granted = channel('holdfast:granted');
const lost = channel('holdfast:lost');
const evicted = channel('holdfast:evicted');
const outage = channel('holdfast:outage');
const guard = channel('holdfast:guard');

/** Asked first, so that nothing is made for nobody. */
export const acquireIsObserved = (): boolean => acquire.hasSubscribers || granted.hasSubscribers;
export const releaseIsObserved = (): boolean => release.hasSubscribers;

export const traceAcquire = <T>(message: AcquireMessage, run: () => Promise<T>): Promise<T> =>
  acquire.tracePromise(run, message);

export const traceRelease = <T>(message: ReleaseMessage, run: () => Promise<T>): Promise<T> =>
  release.tracePromise(run, withTokenAsText(message));

export const traceBeat = <T>(message: BeatMessage, run: () => Promise<T>): Promise<T> =>
  beat.hasSubscribers ? beat.tracePromise(run, message) : run();

/** Somebody goes on to try although the engine can't be asked. */
export const publishOutage = (message: OutageMessage): void => outside(() => outage.publish(message));

export const publishGuard = (message: GuardMessage): void => outside(() => guard.publish(message));

export const publishGranted = (message: GrantedMessage): void => granted.publish(withTokenAsText(message));

/** Whoever happened to notice the loss has nothing to do with it. */
export const publishLost = (message: LostMessage): void => {
  const channels = message.loss.reason === 'evicted' ? [lost, evicted] : [lost];
  if (!channels.some(({ hasSubscribers }) => hasSubscribers)) return;
  withTokenAsText(message);
  outside(() => {
    for (const each of channels) each.publish(message);
  });
};
