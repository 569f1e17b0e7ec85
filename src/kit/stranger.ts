/** For errors of connections that were made, and came to nothing: something else may listen on that port. */
export function orStranger(system: string): string {
  return `If it stays so: is it ${system} that listens there?`;
}
