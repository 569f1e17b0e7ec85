/**
 * What an engine says of its URLs. It is data, known before any client library is loaded, so what an engine can't do is refused
 * when a lock is made, and what is wrong with a URL is told when the Holdfast is.
 */
import type { EngineSource, Traits } from '../core/engine.js';
import { FILE_PARAMS } from './certificates.js';
import type { Schema } from './schema.js';
import type { EngineUrl } from './url.js';

export interface Scheme {
  /** Whether its URLs name servers: `scheme://host`. Default: no. */
  readonly hosts?: boolean;
  /** By name, the default first. */
  readonly strategies: Readonly<Record<string, Strategy>>;
  /** Parameters that the URL may carry beside `strategy`. */
  readonly params: readonly string[];
}

export interface Strategy {
  readonly traits: Traits;
  load(url: EngineUrl): Promise<EngineSource>;
  readonly realm?: (url: EngineUrl) => (name: string) => string;
  /** Throws if something is wrong with the URL. */
  check?(url: EngineUrl): unknown;
  /** Absent where there is nothing to set up. */
  readonly schema?: (url: EngineUrl) => Promise<Schema>;
}

export type Schemes = Readonly<Record<string, Scheme>>;

/** A scheme and the same over TLS (`etcd`, `etcds`), of a system that has one strategy. */
export function plainAndTls(name: string, queue: Strategy): Schemes {
  const plain: Scheme = { hosts: true, params: [], strategies: { queue } };
  return { [name]: plain, [`${name}s`]: { ...plain, params: FILE_PARAMS } };
}
