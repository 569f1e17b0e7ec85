/** Looks at lines without touching them, page by page, all as they were at one revision. */
import type { EngineClaim, EngineLine, LineKind, LineQuery, LineRef } from '../../core/engine.js';
import { EngineError, UnsupportedError } from '../../core/errors.js';
import { ALL } from '../../core/line.js';
import type { EtcdClient } from './client/client.js';
import { ORDER, SORT } from './client/messages.js';
import { explained } from './errors.js';
import { EtcdError, STATUS } from './client/status.js';
import { claimIdIn, isLeaseAlone, type Keys, under } from './keys.js';
import { heldCount, readAll, type StandingKey, written } from './protocol.js';

const PAGE = 500;
/** As many keys as surely fit an answer, whatever somebody else has written there. */
const LEAST_PAGE = 2;
const CALL_MS = 5_000;
/** All claims of a line are kept until the last of them was read. */
const LONGEST_LINE = 100_000;

/** What is listed of a claim, and where it stands. */
interface Listed {
  readonly line: LineRef;
  readonly capacity: number;
  readonly standing: StandingKey;
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
      if (line.push(listed) > LONGEST_LINE)
        throw new EngineError(`etcd: a line of more than ${LONGEST_LINE} claims can't be listed.`, {
          retryable: false,
        });
    }
    if (line.length > 0) yield viewed(line);
  }
}

/** The claims of one name. */
async function* named(client: EtcdClient, keys: Keys, kind: LineKind, name: string): AsyncIterable<Listed> {
  const line = { kind, name };
  const prefix = kind === 'lock' ? keys.line(line, ALL) : keys.semaphores(name);
  for await (const standing of standingsUnder(client, prefix)) {
    const capacity = kind === 'semaphore' ? keys.lineOf(standing.key)?.capacity : ALL;
    if (capacity !== undefined && isClaim(standing, kind, prefix)) yield { line, capacity, standing };
  }
}

/** And not whatever else lies among claims. */
function isClaim({ key, kv }: StandingKey, kind: LineKind, prefix?: string): boolean {
  const suffix = kind === 'lock' && prefix !== undefined ? key.slice(prefix.length) : lastPart(key);
  return claimIdIn(suffix) !== undefined || (kind === 'lock' && isLeaseAlone(suffix, kv.lease));
}

function lastPart(key: string): string {
  return key.slice(key.lastIndexOf('/') + 1);
}

async function* withPrefix(client: EtcdClient, keys: Keys, kind: LineKind, begin: string): AsyncIterable<Listed> {
  if (!keys.ownNames && kind === 'lock')
    throw new UnsupportedError(
      "With keys of your own, which locks there are can't be listed: ask for one by its name.",
    );
  for await (const standing of standingsUnder(client, keys.lines(kind, begin))) {
    const found = keys.lineOf(standing.key);
    if (found?.line.name.startsWith(begin) && isClaim(standing, kind))
      yield { line: found.line, capacity: found.capacity ?? ALL, standing };
  }
}

/** By key, so claims of one line come together. */
async function* standingsUnder(client: EtcdClient, prefix: string): AsyncIterable<StandingKey> {
  const { from, to } = under(prefix);
  const order = { sortTarget: SORT.key, sortOrder: ORDER.ascending };
  let key = from;
  let revision = 0n;
  let limit = PAGE;
  for (;;) {
    const reading = client.range(
      { key, rangeEnd: to, limit: BigInt(limit), revision, ...order },
      { withinMs: CALL_MS },
    );
    const page = await explained(limit > LEAST_PAGE ? unlessTooLarge(reading) : reading);
    if (!page) {
      limit = LEAST_PAGE;
      continue;
    }
    limit = Math.min(PAGE, 4 * limit);
    yield* readAll(page.kvs);
    const last = page.kvs.at(-1);
    if (!page.more || !last) return;
    if (Buffer.compare(last.key, key) < 0) throw new EngineError('etcd listed keys that it was not asked for.');
    revision ||= page.header.revision;
    // The next key there can be.
    key = Buffer.concat([last.key, Buffer.of(0)]);
  }
}

async function unlessTooLarge<T>(reading: Promise<T>): Promise<T | undefined> {
  try {
    return await reading;
  } catch (error) {
    if (error instanceof EtcdError && error.status === STATUS.resourceExhausted) return undefined;
    throw error;
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

function viewedClaim({ key, kv, weight }: StandingKey, held: boolean): EngineClaim {
  const suffix = lastPart(key);
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
): Promise<StandingKey | undefined> {
  for (const kind of ['lock', 'semaphore'] as const)
    for await (const { standing } of named(client, keys, kind, name))
      if (claimIdIn(lastPart(standing.key)) === claimId) return standing;
  return undefined;
}
