/**
 * The keys of one lock on every node, which need no hash tag: a node is no cluster.
 *
 *     <key>                    the lock
 *     holdfast_ballot:<key>    the highest token that the node has accepted
 *     holdfast_freed:<key>     a channel: a claim is gone
 */
export function ballotKey(key: string): string {
  return `holdfast_ballot:${key}`;
}

export function ballotChannel(key: string): string {
  return `holdfast_freed:${key}`;
}
