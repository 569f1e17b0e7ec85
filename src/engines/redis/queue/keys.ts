/**
 * Names are hashed onto shards. A shard's keys share a hash tag, so they live on one node of a cluster and one script may
 * use them all; each shard in use costs a session, hence a beat. On a single node there is one shard.
 *
 *     <namespace>:{<shard>}:sessions      and :state, :order, see protocol.ts
 *     <namespace>:{<shard>}:register:<name>
 *     <namespace>:{<shard>}:inbox:<id>    a channel: what a session is told
 */

const CLUSTER_SHARDS = 64;

/** The realm of a name on a cluster. The number of shards and the hash are part of the protocol: all clients must agree. */
export function clusterRealm(name: string): string {
  return `${fnv1a(name) % CLUSTER_SHARDS}`;
}

/** Without a cluster every name has this realm, which is also what the core says where an engine has no realms. */
const SINGLE_REALM = '';

export function allRealms(cluster: boolean): readonly string[] {
  return cluster ? Array.from({ length: CLUSTER_SHARDS }, (_, shard) => `${shard}`) : [SINGLE_REALM];
}

export function realmOf(name: string, cluster: boolean): string {
  return cluster ? clusterRealm(name) : SINGLE_REALM;
}

/** What all keys of a shard begin with. A brace in the namespace would be taken for the hash tag. */
export function shardPrefix(namespace: string, realm: string): string {
  return `${namespace.replace(/[%{}]/g, encodeURIComponent)}:{${realm === SINGLE_REALM ? '0' : realm}}:`;
}

export function registerKey(namespace: string, name: string, cluster: boolean): string {
  return `${shardPrefix(namespace, realmOf(name, cluster))}register:${name}`;
}

/** 32 bits, over the bytes of UTF-8. */
function fnv1a(text: string): number {
  let hash = 0x811c9dc5;
  for (const byte of Buffer.from(text)) hash = Math.imul(hash ^ byte, 0x01000193);
  return hash >>> 0;
}
