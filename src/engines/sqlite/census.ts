/**
 * Whose session is over.
 *
 * - Of our own boot: it has expired by the monotonic clock, which all processes of a boot share; or its process has certainly
 *   ended (host.ts).
 * - Of a foreign boot, that is from before a reboot or of another host: its times mean nothing here, so its counter of beats is
 *   watched. It is over when that has stood still for its ttl. What was seen of it is in the file (`watch`), because those
 *   who only try end before a ttl is over: one after the other they see what none of them could see alone. Each boot that
 *   watches has a row of its own, or two hosts would take each other's times for theirs.
 * - It has no row, but claims: somebody has deleted it.
 *
 * Anybody may have written here by hand, and what is wrong with one row must not cost others their beat: numbers are read as
 * floats, because a driver throws at integers beyond 2^53.
 */
import type { LineRef } from '../../core/engine.js';
import type { Database, Statement } from './client/driver.js';
import { host, isDead, monotonicMs } from './host.js';

/** Claims of nobody: somebody has deleted their session. */
interface Orphan {
  readonly id: null;
  readonly claimant: string;
}

interface SessionRow {
  readonly id: string;
  readonly boot_id: string;
  readonly pid: number;
  readonly pid_ns: string | null;
  readonly start_time: string | null;
  readonly ttl_ms: number;
  readonly expires_ms: number;
  readonly beats: number;
  /** What our boot has seen of it. */
  readonly seen_beats: number | null;
  readonly seen_since_ms: number | null;
}

const COLUMNS = `s.id, s.boot_id, s.pid_ns, s.start_time,
    CAST(s.pid AS REAL) AS pid, CAST(s.ttl_ms AS REAL) AS ttl_ms, CAST(s.expires_ms AS REAL) AS expires_ms,
    CAST(s.beats AS REAL) AS beats, CAST(w.beats AS REAL) AS seen_beats, CAST(w.since_ms AS REAL) AS seen_since_ms`;

/** What our boot has seen of it. */
const WATCH = 'LEFT JOIN watch AS w ON w.session = s.id AND w.boot_id = ?';

const SESSIONS = `
  SELECT ${COLUMNS} FROM session AS s ${WATCH}
  WHERE s.namespace = ?`;

/**
 * Those whose end would help whoever wants a line: who holds it, and who is next there. Those in between are looked at when it is
 * their turn. A claimant without a session is over.
 */
const IN_THE_WAY = `
  WITH wanted (namespace, kind, name) AS (VALUES (?, ?, ?)),
  way (claimant) AS (
    SELECT session FROM claim JOIN wanted USING (namespace, kind, name) WHERE held = 1
    UNION
    SELECT session FROM (SELECT session FROM claim JOIN wanted USING (namespace, kind, name) WHERE held = 0 ORDER BY token LIMIT 1)
  )
  SELECT claimant, ${COLUMNS} FROM way LEFT JOIN session AS s ON s.id = claimant ${WATCH}`;

const WAITED_FOR = 'SELECT DISTINCT kind, name FROM claim WHERE session = ? AND namespace = ? AND held = 0';

/** From each session to the next in the index: claims may be many, sessions are few. */
const WITHOUT_SESSION = `
  WITH RECURSIVE claimant (id) AS (
    SELECT min(session) FROM claim
    UNION ALL
    SELECT (SELECT min(session) FROM claim WHERE session > claimant.id) FROM claimant WHERE claimant.id IS NOT NULL
  )
  SELECT id FROM claimant
  WHERE id IS NOT NULL AND NOT EXISTS (SELECT 1 FROM session WHERE session.id = claimant.id)
    AND (SELECT namespace FROM claim WHERE session = claimant.id LIMIT 1) = ?`;

type Finding = 'lives' | 'is over' | 'must be watched anew';

export class Census {
  readonly #namespace: string;
  readonly #sessions: Statement;
  readonly #inTheWay: Statement;
  readonly #waitedFor: Statement;
  readonly #withoutSession: Statement;
  readonly #watch: Statement;

  constructor(database: Database, namespace: string) {
    this.#namespace = namespace;
    this.#sessions = database.prepare(SESSIONS);
    this.#inTheWay = database.prepare(IN_THE_WAY);
    this.#waitedFor = database.prepare(WAITED_FOR);
    this.#withoutSession = database.prepare(WITHOUT_SESSION);
    this.#watch = database.prepare('INSERT OR REPLACE INTO watch VALUES (?, ?, ?, ?)');
  }

  /** Whether `deadIn` would find or note anything in the lines that a session waits in. A read, outside of any transaction. */
  hasNewsFor(waiting: string): boolean {
    const lines = this.#waitedFor.all(waiting, this.#namespace) as unknown as LineRef[];
    return lines.some((line) => this.#way(line).some((session) => verdictOn(session) !== 'lives'));
  }

  /**
   * Whether `dead` would find or note anything by the times alone. A read, outside of any transaction, so that the living are not
   * disturbed. Whether a process has ended is asked by those whom it stands in the way: for all of them it takes far longer.
   */
  hasNews(): boolean {
    return this.#all().some((session) => judgeByTime(session) !== 'lives') || this.#orphans().length > 0;
  }

  /** The sessions that are over and in the way of whoever wants this line. Notes what there is to be seen of the others. */
  deadIn(line: LineRef): string[] {
    return this.#over(this.#way(line));
  }

  /** The sessions that are over. Notes what there is to be seen of the others. */
  dead(): string[] {
    return this.#orphans().concat(this.#over(this.#all()));
  }

  #over(sessions: readonly (SessionRow | Orphan)[]): string[] {
    const over: string[] = [];
    for (const session of sessions) {
      const verdict = verdictOn(session);
      if (verdict === 'is over') over.push(session.id ?? session.claimant);
      if (verdict === 'must be watched anew' && session.id !== null)
        this.#watch.run(session.id, host.bootId, session.beats, monotonicMs());
    }
    return over;
  }

  #way({ kind, name }: LineRef): (SessionRow | Orphan)[] {
    const rows = this.#inTheWay.all(this.#namespace, kind, name, host.bootId);
    return rows as unknown as (SessionRow | Orphan)[];
  }

  #all(): SessionRow[] {
    return this.#sessions.all(host.bootId, this.#namespace) as unknown as SessionRow[];
  }

  #orphans(): string[] {
    return this.#withoutSession.all(this.#namespace).map(({ id }) => id as string);
  }
}

function verdictOn(session: SessionRow | Orphan): Finding {
  return session.id === null ? 'is over' : judge(session);
}

function judge(session: SessionRow): Finding {
  const { boot_id: bootId, pid, pid_ns: pidNamespace, start_time: startTime } = session;
  const verdict = judgeByTime(session);
  // Of a foreign boot no process can be told anything; isDead knows.
  if (verdict !== 'lives') return verdict;
  const process = { bootId, pid, pidNamespace: pidNamespace ?? undefined, startTime: startTime ?? undefined };
  return isDead(process) ? 'is over' : 'lives';
}

function judgeByTime(session: SessionRow): Finding {
  const now = monotonicMs();
  // No beat sets a time so far ahead: it is of another clock than ours, whatever it says of its boot.
  const isOfOurClock = session.expires_ms <= now + session.ttl_ms;
  if (session.boot_id !== host.bootId || !isOfOurClock) return judgeByBeats(session, now);
  return session.expires_ms <= now ? 'is over' : 'lives';
}

function judgeByBeats(session: SessionRow, now: number): Finding {
  const { beats, ttl_ms: ttlMs, seen_beats: seenBeats, seen_since_ms: since } = session;
  // A time to come is of another boot with our name: where that is a guess (host.ts), two may have the same.
  if (seenBeats !== beats || since === null || since > now) return 'must be watched anew';
  return now - since >= ttlMs ? 'is over' : 'lives';
}
