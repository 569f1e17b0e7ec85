import type { EngineSource } from './core/engine.js';
import { ConfigError } from './core/errors.js';
import { Holdfast as HoldfastOver, type HoldfastOptions } from './holdfast.js';
import { engineFromUrl, fixFor } from './schemes.js';

/**
 * Locks over one engine.
 *
 * @example
 * await using locks = new Holdfast('memory:');
 * await locks.mutex('order:42').run(async (lease) => {
 *   lease.assertHeld();
 * });
 */
export class Holdfast extends HoldfastOver {
  /** @param engine a URL (`'memory:'`), or what an engine's function gives (`memory()`). No I/O happens yet. */
  constructor(engine: string | EngineSource, options: HoldfastOptions = {}) {
    super(sourceOf(engine), options);
  }
}

function sourceOf(engine: string | EngineSource): EngineSource {
  if (typeof engine === 'string') return engineFromUrl(engine);
  const client = fixFor(engine);
  if (client === undefined) return engine;
  throw new ConfigError(
    `Holdfast needs an engine: a URL like 'memory:', or one like memory() from 'holdfast/memory'; got ${client}`,
  );
}
