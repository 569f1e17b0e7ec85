/**
 * Tokens have two scales. The engine mints one for each claim; a user's is the engine's times this plus the turn, so that every
 * turn that is made of one claim has its own, still increasing.
 */
const TURNS_PER_TOKEN = 1024n;

export function usersToken(enginesToken: bigint, turn: number): bigint {
  return enginesToken * TURNS_PER_TOKEN + BigInt(turn);
}

/** A user's token is a signed integer of 64 bits to databases and fences, whatever the turn. */
const HIGHEST_TOKEN = 2n ** 63n / TURNS_PER_TOKEN - 1n;

/** Whether a token of the engine's can be one: what strangers wrote beside us may have been counted on. */
export function isEnginesToken(token: bigint): boolean {
  return token >= 1n && token <= HIGHEST_TOKEN;
}
