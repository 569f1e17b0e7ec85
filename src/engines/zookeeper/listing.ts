/** Looks at lines without touching them: which there are, who stands in each, and what each claim's node says. */
import type { EngineClaim, EngineLine, LineKind, LineQuery, LineRef } from '../../core/engine.js';
import { UnsupportedError } from '../../core/errors.js';
import { ALL } from '../../core/line.js';
import type { Znode, ZooKeeperClient } from './client/client.js';
import { orUndefined } from './client/status.js';
import { explained } from './errors.js';
import { claimsIn, heldCount, written } from './protocol.js';
import { type ClaimName, nameOf, type Paths } from './keys.js';

/** How many nodes are asked for at a time. */
const AT_ONCE = 200;

export async function* listLines(client: ZooKeeperClient, paths: Paths, query: LineQuery): AsyncIterable<EngineLine> {
  const { name, prefix = '' } = query;
  if (name !== undefined && !name.startsWith(prefix)) return;
  // Whatever was done before we were asked is shown.
  await explained(client.sync());
  for (const kind of ['lock', 'semaphore'] as const) {
    const names = name === undefined ? await namesOf(client, paths, kind) : [name];
    for (const each of names.filter((one) => one.startsWith(prefix))) {
      const line = await viewed(client, paths, { kind, name: each });
      if (line) yield line;
    }
  }
}

async function namesOf(client: ZooKeeperClient, paths: Paths, kind: LineKind): Promise<readonly string[]> {
  if (!paths.ownNames && kind === 'lock')
    throw new UnsupportedError(
      "With keys of your own, which locks there are can't be listed: ask for one by its name.",
    );
  return (await children(client, paths.lines(kind))).flatMap((name) => nameOf(name) ?? []);
}

async function viewed(client: ZooKeeperClient, paths: Paths, line: LineRef): Promise<EngineLine | undefined> {
  const path = paths.line(line);
  const claims = claimsIn(await children(client, path), line.kind);
  const [first] = claims;
  if (!first) return undefined;
  const { capacity } = first;
  const held = heldCount(claims, capacity);
  const seen: EngineClaim[] = [];
  for (let from = 0; from < claims.length; from += AT_ONCE) {
    const some = claims.slice(from, from + AT_ONCE);
    const nodes = await Promise.all(some.map(({ node }) => nodeAt(client, `${path}/${node}`)));
    // One that is gone by now had left.
    for (const [at, node] of nodes.entries()) if (node) seen.push(viewedClaim(some[at]!, node, from + at < held));
  }
  return { ...line, capacity: line.kind === 'lock' ? ALL : capacity, claims: seen };
}

function viewedClaim({ id, node: name, weight }: ClaimName, { data, stat }: Znode, held: boolean): EngineClaim {
  const says = written(data);
  return {
    id: id ?? name,
    state: held ? 'held' : 'waiting',
    weight,
    token: says?.token === undefined ? stat.czxid : BigInt(says.token),
    since: says?.since ?? Number(stat.ctime),
    note: says?.note,
  };
}

/** The claim of this id, in whichever line of the name it stands, and the session that it goes with. */
export async function findClaim(
  client: ZooKeeperClient,
  paths: Paths,
  name: string,
  claimId: string,
): Promise<{ readonly path: string; readonly session: bigint } | undefined> {
  await explained(client.sync());
  for (const kind of ['lock', 'semaphore'] as const) {
    const line = paths.line({ kind, name });
    const claim = claimsIn(await children(client, line), kind).find(({ id }) => id === claimId);
    const path = claim && `${line}/${claim.node}`;
    const node = path && (await nodeAt(client, path));
    if (node) return { path, session: node.stat.ephemeralOwner };
  }
  return undefined;
}

async function children(client: ZooKeeperClient, path: string): Promise<readonly string[]> {
  return (await explained(orUndefined(client.getChildren(path))))?.names ?? [];
}

function nodeAt(client: ZooKeeperClient, path: string): Promise<Znode | undefined> {
  return explained(orUndefined(client.getData(path)));
}
