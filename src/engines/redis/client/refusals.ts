/**
 * Of a cluster or of Sentinels that can't be reached ioredis says no more than that its connection is closed: it drops what the
 * system said. So the system is asked once more.
 */
import { connect } from 'node:net';
import { clearTimeout, setTimeout } from '../../../core/real-time.js';

export interface Address {
  readonly host: string;
  readonly port: number;
}

/** Whoever asks has waited already. */
const DIAL_MS = 1_000;

/** Why none of them takes a connection, in the words of the system. Undefined: one does, or says nothing for too long. */
export async function refusalsOf(addresses: readonly Address[]): Promise<Error | undefined> {
  const refusals = await Promise.all(addresses.map(refusalOf));
  const words = refusals.flatMap((refusal) => (refusal ? [refusal.message || String(refusal.code)] : []));
  return words.length === 0 || words.length < addresses.length
    ? undefined
    : new Error(words.join(', '), { cause: refusals[0] });
}

function refusalOf({ host, port }: Address): Promise<NodeJS.ErrnoException | undefined> {
  return new Promise((resolve) => {
    const socket = connect({ host, port });
    const settle = (refusal?: Error): void => {
      clearTimeout(timer);
      socket.destroy();
      resolve(refusal);
    };
    const timer = setTimeout(settle, DIAL_MS);
    socket.once('connect', () => settle());
    socket.once('error', settle);
  });
}
