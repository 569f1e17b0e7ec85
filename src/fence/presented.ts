/** What is shown at a fence: a lease, or a bare token that came by another way (a queue, HOLDFAST_TOKEN, a header). */
import { show } from '../core/duration.js';
import type { Fence } from '../core/engine.js';
import { ConfigError, quote } from '../core/errors.js';
import { PRESENT, type Presentable } from '../core/fence.js';
import { checkName } from '../core/names.js';
import type { Lease } from '../index.js';

export interface OpenOptions {
  /** For a bare token: it is a reader's, of `rwLock().read`. A lease knows by itself. Default: false. */
  readonly shared?: boolean | undefined;
}

/** What is opened with what: one resource, or several with one lease for all of them, or with one for each. */
export type Resources = string | readonly string[];
export type Shown = Lease | bigint;

/** Tokens are integers of 64 bits with a sign. */
export const LARGEST_TOKEN = 2n ** 63n - 1n;

export function presented(shown: Lease | bigint, { shared }: OpenOptions = {}): Fence & { readonly origin?: unknown } {
  if (typeof shown === 'bigint') {
    if (shown < 1n || shown > LARGEST_TOKEN)
      throw new ConfigError(`A token is a positive integer of 64 bits; got ${shown}.`);
    return { token: shown, mode: shared ? 'read' : 'write' };
  }
  if (typeof shown !== 'object' || shown === null || !(PRESENT in shown))
    throw new ConfigError(
      `A fence is opened with a lease, or with its token as a bigint; got ${show(shown)}. ` +
        'Of several locks (all) it is leases.of(lock), of a text BigInt(text). A number is no token: it has only 53 bits.',
    );
  const fence = (shown as unknown as Presentable)[PRESENT]();
  if (shared !== undefined && shared !== (fence.mode === 'read'))
    throw new ConfigError(
      `shared is ${shared}, but the lease of ${quote(shown.name)} is a ${fence.mode} lease. A lease knows by itself.`,
    );
  return fence;
}

/**
 * What one fence has been shown. It remembers whose leases those are: a token of a second engine is neither older nor newer,
 * and would lock out the first for ever, or let everything pass.
 */
export class Presenter {
  #origin: unknown;

  present(shown: Lease | bigint, options?: OpenOptions): Fence {
    const { origin, ...fence } = presented(shown, options);
    if (origin === undefined) return fence;
    this.#origin ??= origin;
    if (this.#origin !== origin)
      throw new ConfigError(
        'This fence has been opened with leases of another engine, whose tokens can’t be compared. Make a fence for each.',
      );
    return fence;
  }

  /** In one order, whoever opens them: transactions that open the same fences do not wait for each other in a circle. */
  presentAll(
    resources: Resources,
    shown: Shown | readonly Shown[],
    options?: OpenOptions,
  ): readonly (readonly [resource: string, fence: Fence])[] {
    const names = typeof resources === 'string' ? [resources] : resources;
    if (!Array.isArray(names) || names.length === 0)
      throw new ConfigError(`A fence is opened for a resource's name, or a list of them; got ${show(resources)}.`);
    if (isList(shown) && shown.length !== names.length)
      throw new ConfigError(`There are ${names.length} resources, and ${shown.length} leases or tokens for them.`);
    return names
      .map((name, at) => [checkResource(name), this.present(isList(shown) ? shown[at]! : shown, options)] as const)
      .sort(([a], [b]) => (a < b ? -1 : 1));
  }
}

function isList(shown: Shown | readonly Shown[]): shown is readonly Shown[] {
  return Array.isArray(shown);
}

export function checkResource(resource: unknown): string {
  return checkName(resource, "A fenced resource's name");
}
