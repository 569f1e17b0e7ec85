/**
 * What an engine's server tells a session: to the one channel that the session listens to, where anybody may write who can find it.
 * So a message is a hint. Only a grant that carries the nonce of its claim is believed.
 *
 *     granted <claim> <token> <nonce>     it holds, from the step on that sent this
 *     evicted <claim>                     somebody wants it to go
 *
 * Anything else is no message of ours, and is passed over.
 */
export type Message =
  | { readonly what: 'granted'; readonly id: string; readonly token: bigint; readonly nonce: string }
  | { readonly what: 'evicted'; readonly id: string };

const GRANTED = /^granted (\S{1,200}) (\d{1,19})(?: (\S{1,200}))?$/;
const EVICTED = /^evicted (\S{1,200})(?: |$)/;

/** Undefined: it is none of ours. */
export function parseMessage(text: string): Message | undefined {
  const [, granted, token, nonce = ''] = GRANTED.exec(text) ?? [];
  if (granted !== undefined) return { what: 'granted', id: granted, token: BigInt(token!), nonce };
  const evicted = EVICTED.exec(text)?.[1];
  return evicted === undefined ? undefined : { what: 'evicted', id: evicted };
}

/** Does what a message is the reason for. Whatever it throws would end the process, because a client's event has no caller. */
export function quietly(hear: () => void): void {
  try {
    hear();
  } catch {
    // Whoever missed what this was about finds it with its next beat, or when it looks.
  }
}
