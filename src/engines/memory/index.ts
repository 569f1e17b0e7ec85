/**
 * The memory engine: for tests, and for one process. Instances of one process share a space by its name.
 * A space lives as long as the process; nothing of it survives. See protocol.ts for the rule.
 */
import type { EngineSource } from '../../core/engine.js';
import { MemoryEngine } from './engine.js';
import { traits } from './traits.js';

/** Locks in this process's memory: `new Holdfast(memory())` or `new Holdfast('memory:')`. */
export function memory(space = ''): EngineSource {
  return {
    traits,
    place: `memory:${space}`,
    title: 'memory',
    connect: (setup) => Promise.resolve(new MemoryEngine(space, setup)),
  };
}
