/** One line on a terminal that says who is in the way, for as long as we wait. Nothing where nobody looks. */
import type { ClaimView, Holdfast, LineView, Lock } from '../index.js';
import { age, printable, quote } from './text.js';

const REFRESH_MS = 1_000;
/** Most waits are shorter: a line that only flashes tells nobody anything. */
const FIRST_MS = 300;

export function showWaiting(locks: Holdfast, lock: Lock, stream: NodeJS.WriteStream = process.stderr): Disposable {
  if (!stream.isTTY) return { [Symbol.dispose]: () => {} };
  let over = false;
  let shown = false;
  let timer = setTimeout(() => void show(), FIRST_MS);
  const show = async (): Promise<void> => {
    const line = await lock.inspect().catch(() => undefined);
    if (over) return;
    const text = `holdfast: ${describe(lock.name, line, locks.stats().guardEndsInMs)}`;
    // A line that wraps can't be cleared. Some terminals do not know their width and say 0.
    stream.write(`\r\x1b[K${text.slice(0, (stream.columns || 80) - 1)}`);
    shown = true;
    timer = setTimeout(() => void show(), REFRESH_MS);
  };
  return {
    [Symbol.dispose]: () => {
      over = true;
      clearTimeout(timer);
      if (shown) stream.write('\r\x1b[K');
    },
  };
}

function describe(name: string, line: LineView | undefined, guardEndsInMs: number | undefined): string {
  const waiting = `waiting for ${quote(name)}`;
  const holder = line?.claims[0];
  if (guardEndsInMs !== undefined && holder?.state !== 'held')
    return `${waiting}: the server has just started, locks in ${age(guardEndsInMs + 999)}`;
  if (!line || !holder) return waiting;
  // Only claims of our own instance carry `local`.
  const place = line.claims.findIndex((claim) => claim.local !== undefined);
  return `${waiting}: ${heldBy(holder)}${place > 1 ? `, ${place} before us` : ''}`;
}

export function heldBy({ label, since }: Pick<ClaimView, 'label' | 'since'>): string {
  return `held by ${printable(label)} for ${age(Date.now() - since)}`;
}
