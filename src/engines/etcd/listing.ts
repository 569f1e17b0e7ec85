/** Looks at lines without touching them, page by page, all as they were at one revision. */
import type { EngineClaim, EngineLine, LineKind, LineQuery, LineRef } from '../../core/engine.js';
import { UnsupportedError } from '../../core/errors.js';
import { ALL } from '../../core/line.js';
import type { EtcdClient } from './client/client.js';
import { ORDER, SORT } from './client/messages.js';
import { explained } from './errors.js';
import { claimIdIn, isOf, type Keys, under } from './keys.js';
import { heldCount, readAll, type Standing, written } from './protocol.js';

const PAGE = 500;
const CALL_MS = 5_000;

/** What is listed of a claim, and where it stands. */
interface Listed {
  readonly line: LineRef;
  readonly capacity: number;
  readonly standing: Standing;
}

export async function* listLines(client: EtcdClient, keys: Keys, query: LineQuery): AsyncIterable<EngineLine> {
  const { name, prefix = '' } = query;
  if (name !== undefined && !name.startsWith(prefix)) return;
  for (const kind of ['lock', 'semaphore'] as const) {
    let line: Listed[] = [];
    for await (const listed of name === undefined
      ? withPrefix(client, keys, kind, prefix)
      : named(client, keys, kind, name)) {
      if (line[0] && line[0].line.name !== listed.line.name) {
        yield viewed(line);
        line = [];
      }
      line.push(listed);
    }
    if (line.length > 0) yield viewed(line);
  }
}

/** The claims of one name. */
async function* named(client: EtcdClient, keys: Keys, kind: LineKind, name: string): AsyncIterable<Listed> {
  const line = { kind, name };
  const prefix = kind === 'lock' ? keys.line(line, ALL) : keys.semaphores(name);
  for await (const standing of standingsUnder(client, prefix)) {
    if (kind === 'lock' && !isOf(prefix, standing.key)) continue;
    const capacity = kind === 'lock' ? ALL : Number(standing.key.slice(prefix.length).split('/')[0]);
    yield { line, capacity, standing };
  }
}

async function* withPrefix(client: EtcdClient, keys: Keys, kind: LineKind, begin: string): AsyncIterable<Listed> {
  if (!keys.ownNames && kind === 'lock')
    throw new UnsupportedError(
      "With keys of your own, which locks there are can't be listed: ask for one by its name.",
    );
  for await (const standing of standingsUnder(client, keys.lines(kind, begin))) {
    const found = keys.lineOf(standing.key);
    if (found?.line.name.startsWith(begin)) yield { line: found.line, capacity: found.capacity ?? ALL, standing };
  }
}

/** By key, so claims of one line come together. */
async function* standingsUnder(client: EtcdClient, prefix: string): AsyncIterable<Standing> {
  const { from, to } = under(prefix);
  let key = from;
  let revision = 0n;
  for (;;) {
    const page = { key, rangeEnd: to, limit: BigInt(PAGE), revision, sortTarget: SORT.key, sortOrder: ORDER.ascending };
    const { header, kvs, more } = await explained(client.range(page, { withinMs: CALL_MS }));
    yield* readAll(kvs);
    const last = kvs.at(-1);
    if (!more || !last) return;
    revision ||= header!.revision;
    // The next key there can be.
    key = Buffer.concat([last.key, Buffer.of(0)]);
  }
}

function viewed(claims: readonly Listed[]): EngineLine {
  const { line, capacity } = claims[0]!;
  const standings = claims
    .map(({ standing }) => standing)
    .sort((a, b) => (a.kv.createRevision < b.kv.createRevision ? -1 : 1));
  const held = heldCount(standings, capacity);
  return { ...line, capacity, claims: standings.map((standing, at) => viewedClaim(standing, at < held)) };
}

function viewedClaim({ key, kv, weight }: Standing, held: boolean): EngineClaim {
  const suffix = key.slice(key.lastIndexOf('/') + 1);
  const says = written(kv.value);
  return {
    id: claimIdIn(suffix) ?? suffix,
    state: held ? 'held' : 'waiting',
    weight,
    token: kv.createRevision,
    since: says?.since ?? 0,
    note: says?.note,
  };
}

/** The claim of this id, in whichever line of the name it stands. */
export async function findClaim(
  client: EtcdClient,
  keys: Keys,
  name: string,
  claimId: string,
): Promise<Standing | undefined> {
  for (const kind of ['lock', 'semaphore'] as const)
    for await (const { standing } of named(client, keys, kind, name))
      if (claimIdIn(standing.key.slice(standing.key.lastIndexOf('/') + 1)) === claimId) return standing;
  return undefined;
}
