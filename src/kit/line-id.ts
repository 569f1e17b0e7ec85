/** A line as one text: its kind in front of its name. */
import type { LineRef } from '../core/engine.js';

export function lineId({ kind, name }: LineRef): string {
  return (kind === 'lock' ? 'l' : 's') + name;
}

export function lineRef(id: string): LineRef {
  return { kind: id.startsWith('l') ? 'lock' : 'semaphore', name: id.slice(1) };
}
