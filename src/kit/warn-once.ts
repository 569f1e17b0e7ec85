import { shared } from '../core/one-library.js';

const said = shared('warned', () => new Set<string>());

/** Tells the operator, once in the life of the process. */
export function warnOnce(text: string): void {
  if (said.has(text)) return;
  said.add(text);
  process.emitWarning(text, 'HoldfastWarning');
}
