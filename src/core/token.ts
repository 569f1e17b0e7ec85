/**
 * Tokens have two scales. The engine mints one for each claim; a user's is the engine's times this plus the turn, so that every
 * turn that is made of one claim has its own, still increasing.
 */
const TURNS_PER_TOKEN = 1024n;

export function usersToken(enginesToken: bigint, turn: number): bigint {
  return enginesToken * TURNS_PER_TOKEN + BigInt(turn);
}
