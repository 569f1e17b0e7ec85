/**
 * The protocol of the `queue` strategy, as functions in the database: each call is one transaction and one round trip.
 *
 *     session    who lives, until when by the server's clock, and on which channel it listens
 *     line       capacity, sum of held weights, number of waiters, last token. Idle ones are cleaned away after a while
 *     claim      one row each; tokens are the order in line; `held` for the longest prefix that fits
 *     floor      per namespace: no token of a line that was cleaned away was higher
 *
 * A line's name begins with its kind: `l` lock, `s` semaphore.
 *
 * - The line's lock. A transition takes an advisory lock, made of the line's name, for its transaction: it costs no write,
 *   and there need not be a row yet. Two names with the same hash wait for each other and nothing else. Who takes several
 *   of them (`steps`, `sweep`, `shut`) does so in the order of their keys. So there are no deadlocks.
 * - Who is dead. A session is dead when somebody has deleted its row. Only an expired one is deleted, under its row's lock
 *   (a beat under way is not waited for: who beats is not dead), and a beat is an update of a row that is still there and
 *   still alive. So of the two, exactly one wins.
 * - A claim without a session is an orphan. Whoever is blocked removes the orphans of that line first; all others are
 *   found by `sweep`. Nothing else is ever said about a dead session's claims, so nothing has to happen at once.
 * - Tokens: one above the line's last, or the server's clock in microseconds, whichever is more. Both are needed: rows
 *   outlive a clock that is set back, the clock outlives rows that a failover lost.
 * - Only clock_timestamp() is used: now() stands still while a transaction waits for a lock.
 *
 * What can go wrong: a NOTIFY is a hint and may be missed; beats, looks and timers find the grant. An asynchronous standby
 * that takes over lacks the last commits. A clock that leaps ahead ends every session at once: all of them hear it with
 * their next beat, others may be granted before that.
 *
 * Cost: enter and leave two rows each; O(log n) for each grant on the way; an enter that is blocked looks at the claims of
 * its line; a beat at those of its session.
 */
import { ADVISORY_ROUTINES } from './advisory/protocol.js';
import type { Names } from '../../sql/postgres-names.js';

/** How many lines one transaction locks at most: the server has room for some thousand locks in all. */
const LINES_AT_ONCE = 32;
/** A line without claims is kept for so long: names that are used again and again are not made anew each time. */
const IDLE_SECONDS = 10;
const LINES_CLEANED_AT_ONCE = 5_000;

/** `@word` is a table or a function of ours. */
const ROUTINES = String.raw`
-- What a promise rests on has to survive a crash, whatever the user has set. For the transaction that calls it.
CREATE FUNCTION @durable()
  RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  IF current_setting('synchronous_commit') = 'off' THEN
    PERFORM set_config('synchronous_commit', 'on', true);
  END IF;
END
$$;

-- A message is a hint, and must not fail what it is about: a queue that is full refuses the commit of whoever adds to it, and
-- channels and texts of no length of ours are refused at once.
CREATE FUNCTION @tell(a_channel text, a_message text)
  RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  IF octet_length(a_channel) BETWEEN 1 AND 63 AND octet_length(a_message) < 8000 AND pg_notification_queue_usage() < 0.9 THEN
    PERFORM pg_notify(a_channel, a_message);
  END IF;
END
$$;

-- Deletes the sessions that have expired. Answers how many.
CREATE FUNCTION @bury(a_namespace text)
  RETURNS bigint LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
  buried bigint;
BEGIN
  DELETE FROM @session WHERE id IN (
    SELECT id FROM @session WHERE namespace = a_namespace AND expires <= clock_timestamp() FOR UPDATE SKIP LOCKED
  );
  GET DIAGNOSTICS buried = ROW_COUNT;
  RETURN buried;
END
$$;

-- In how many milliseconds a session may be dead, other than ours; -1 if there is none.
CREATE FUNCTION @next(a_namespace text, a_session text)
  RETURNS bigint LANGUAGE plpgsql AS $$
#variable_conflict use_column
BEGIN
  RETURN coalesce((
    SELECT greatest(0, ceil(extract(epoch FROM min(expires) - clock_timestamp()) * 1000))::bigint
      FROM @session WHERE namespace = a_namespace AND id <> a_session AND isfinite(expires)
  ), -1);
END
$$;

-- Grants from the first that waits while they fit, and tells them. Those of the dead go, and who is left is counted: there may be
-- rows that no count has. The line is locked.
CREATE FUNCTION @admit(a_namespace text, a_line text)
  RETURNS void LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
  it @line%ROWTYPE;
  head record;
BEGIN
  SELECT * INTO it FROM @line WHERE namespace = a_namespace AND line = a_line;
  PERFORM @durable();
  WHILE it.waiting > 0 LOOP
    SELECT c.session, c.id, c.weight, c.token, c.nonce, s.inbox, s.expires <= clock_timestamp() AS expired INTO head
      FROM @claim c LEFT JOIN @session s ON s.id = c.session
      WHERE c.namespace = a_namespace AND c.line = a_line AND NOT c.held ORDER BY c.token LIMIT 1;
    IF NOT FOUND THEN
      it.waiting := 0;
    ELSIF head.inbox IS NULL OR (head.expired AND @bury(a_namespace) > 0) THEN
      DELETE FROM @claim c WHERE c.namespace = a_namespace AND c.line = a_line AND NOT c.held
        AND NOT EXISTS (SELECT FROM @session s WHERE s.id = c.session);
      SELECT count(*) INTO it.waiting FROM @claim WHERE namespace = a_namespace AND line = a_line AND NOT held;
    ELSE
      EXIT WHEN it.held + head.weight > it.capacity;
      UPDATE @claim SET held = true WHERE session = head.session AND id = head.id;
      PERFORM @tell(head.inbox, 'granted ' || head.id || ' ' || head.token || coalesce(' ' || head.nonce, ''));
      it.held := it.held + head.weight;
      it.waiting := it.waiting - 1;
    END IF;
  END LOOP;
  UPDATE @line SET held = it.held, waiting = it.waiting WHERE namespace = a_namespace AND line = a_line;
END
$$;

-- Removes the claims of the dead from a line, and admits. Who waits in a line that somebody has deleted by hand goes as
-- well, and enters again with its next beat. Counted anew, not subtracted: rows may be missing. The line is locked.
CREATE FUNCTION @empty(a_namespace text, a_line text)
  RETURNS void LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
  left_over record;
BEGIN
  DELETE FROM @claim c WHERE c.namespace = a_namespace AND c.line = a_line AND (
    NOT EXISTS (SELECT FROM @session s WHERE s.id = c.session)
    OR (NOT c.held AND NOT EXISTS (SELECT FROM @line l WHERE l.namespace = a_namespace AND l.line = a_line))
  );
  SELECT coalesce(sum(weight) FILTER (WHERE held), 0)::bigint AS held, count(*) FILTER (WHERE NOT held) AS waiting
    INTO left_over FROM @claim WHERE namespace = a_namespace AND line = a_line;
  UPDATE @line SET held = left_over.held, waiting = left_over.waiting, used = clock_timestamp()
    WHERE namespace = a_namespace AND line = a_line AND (held <> left_over.held OR waiting <> left_over.waiting);
  IF FOUND THEN PERFORM @admit(a_namespace, a_line); END IF;
END
$$;

CREATE FUNCTION @open(a_session text, a_namespace text, a_inbox text, a_ttl_ms bigint)
  RETURNS void LANGUAGE plpgsql AS $$
#variable_conflict use_column
BEGIN
  INSERT INTO @floor (namespace) VALUES (a_namespace) ON CONFLICT DO NOTHING;
  INSERT INTO @session (id, namespace, inbox, ttl, expires)
    VALUES (a_session, a_namespace, a_inbox, a_ttl_ms * interval '1 millisecond',
      clock_timestamp() + a_ttl_ms * interval '1 millisecond')
    ON CONFLICT DO NOTHING;
END
$$;

-- Answers h<token> held, w<milliseconds until it may be worth a look> waiting, r refused, m<capacity> the line has
-- another capacity, g the session is gone.
-- A claim that enters again keeps the nonce of its first time.
CREATE FUNCTION @enter(
    a_session text, a_id text, a_namespace text, a_line text, a_serial bigint, a_weight bigint, a_capacity bigint,
    a_wait boolean, a_note text, a_nonce text DEFAULT NULL)
  RETURNS text LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
  seen record;
  fits boolean;
  minted bigint;
BEGIN
  PERFORM pg_advisory_xact_lock(hashtextextended(a_namespace || E'\x1f' || a_line, 0));
  SELECT c.token, c.held, l.capacity, l.held AS taken, l.waiting INTO seen
    FROM @session s
    LEFT JOIN @claim c ON c.session = s.id AND c.id = a_id
    LEFT JOIN @line l ON l.namespace = a_namespace AND l.line = a_line
    WHERE s.id = a_session AND s.expires > clock_timestamp();
  IF NOT FOUND THEN RETURN 'g'; END IF;
  IF seen.held THEN RETURN 'h' || seen.token; END IF;
  IF NOT seen.held THEN RETURN 'w' || @next(a_namespace, a_session); END IF;

  fits := (seen.taken = 0 AND seen.waiting = 0)
    OR (seen.waiting = 0 AND seen.capacity = a_capacity AND seen.taken + a_weight <= a_capacity);
  IF seen.capacity IS NULL THEN
    -- Claims without a line: somebody has deleted it by hand. It is made anew as they have it.
    INSERT INTO @line (namespace, line, capacity, held, waiting, last_token, used)
      SELECT a_namespace, a_line, a_capacity, 0, 0, max(token), clock_timestamp()
        FROM @claim WHERE namespace = a_namespace AND line = a_line HAVING count(*) > 0;
    fits := NOT FOUND;
  END IF;
  IF NOT fits THEN
    PERFORM @bury(a_namespace);
    PERFORM @empty(a_namespace, a_line);
    SELECT capacity, held AS taken, waiting INTO seen FROM @line WHERE namespace = a_namespace AND line = a_line;
    IF seen.taken > 0 OR seen.waiting > 0 THEN
      IF seen.capacity <> a_capacity THEN RETURN 'm' || seen.capacity; END IF;
      fits := seen.waiting = 0 AND seen.taken + a_weight <= a_capacity;
      IF NOT fits AND NOT a_wait THEN RETURN 'r'; END IF;
    ELSE
      fits := true;
    END IF;
  END IF;

  PERFORM @durable();
  UPDATE @line SET
      capacity = a_capacity,
      held = held + CASE WHEN fits THEN a_weight ELSE 0 END,
      waiting = waiting + CASE WHEN fits THEN 0 ELSE 1 END,
      last_token = greatest(last_token + 1, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint),
      used = clock_timestamp()
    WHERE namespace = a_namespace AND line = a_line RETURNING last_token INTO minted;
  IF NOT FOUND THEN
    INSERT INTO @line (namespace, line, capacity, held, waiting, last_token, used)
      VALUES (a_namespace, a_line, a_capacity, a_weight, 0,
        greatest((SELECT token + 1 FROM @floor WHERE namespace = a_namespace), (extract(epoch FROM clock_timestamp()) * 1000000)::bigint), clock_timestamp())
      RETURNING last_token INTO minted;
    fits := true;
  END IF;
  INSERT INTO @claim (session, id, namespace, line, serial, weight, held, token, since, note, nonce)
    VALUES (a_session, a_id, a_namespace, a_line, a_serial, a_weight, fits, minted, clock_timestamp(), a_note, a_nonce);
  IF fits THEN RETURN 'h' || minted; END IF;
  RETURN 'w' || @next(a_namespace, a_session);
END
$$;

-- Whether it stood there. Admits in any case.
CREATE FUNCTION @leave(a_session text, a_id text, a_namespace text, a_line text)
  RETURNS boolean LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
  gone record;
  stood boolean;
  others integer;
BEGIN
  PERFORM pg_advisory_xact_lock(hashtextextended(a_namespace || E'\x1f' || a_line, 0));
  DELETE FROM @claim WHERE session = a_session AND id = a_id AND namespace = a_namespace AND line = a_line
    RETURNING weight, held INTO gone;
  stood := FOUND;
  IF stood THEN
    UPDATE @line SET
        held = held - CASE WHEN gone.held THEN gone.weight ELSE 0 END,
        waiting = waiting - CASE WHEN gone.held THEN 0 ELSE 1 END,
        used = clock_timestamp()
      WHERE namespace = a_namespace AND line = a_line RETURNING waiting INTO others;
  ELSE
    SELECT waiting INTO others FROM @line WHERE namespace = a_namespace AND line = a_line;
  END IF;
  IF others > 0 THEN PERFORM @admit(a_namespace, a_line); END IF;
  RETURN stood;
END
$$;

-- Several steps of one session in one transaction: JSON, [enter or leave, id, line, …] each. Lines are locked in the order
-- of their keys. Answers as JSON, in the order of the steps.
CREATE FUNCTION @steps(a_session text, a_namespace text, a_steps json)
  RETURNS text LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
  step record;
  answers text[] := array_fill(NULL::text, ARRAY[json_array_length(a_steps)]);
BEGIN
  FOR step IN
    SELECT ordinality AS at, value AS words FROM json_array_elements(a_steps) WITH ORDINALITY
      ORDER BY hashtextextended(a_namespace || E'\x1f' || (value->>2), 0), ordinality
  LOOP
    IF step.words->>0 = 'enter' THEN
      answers[step.at] := @enter(a_session, step.words->>1, a_namespace, step.words->>2, (step.words->>3)::bigint,
        (step.words->>4)::bigint, (step.words->>5)::bigint, (step.words->>6)::boolean, step.words->>7,
        step.words->>8);
    ELSIF @leave(a_session, step.words->>1, a_namespace, step.words->>2) THEN
      answers[step.at] := 't';
    END IF;
  END LOOP;
  RETURN array_to_json(answers);
END
$$;

-- Only down.
CREATE FUNCTION @reweigh(a_session text, a_id text, a_namespace text, a_line text, a_weight bigint)
  RETURNS void LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
  was record;
BEGIN
  PERFORM pg_advisory_xact_lock(hashtextextended(a_namespace || E'\x1f' || a_line, 0));
  SELECT weight, held INTO was FROM @claim WHERE session = a_session AND id = a_id AND namespace = a_namespace AND line = a_line;
  IF NOT FOUND OR a_weight >= was.weight THEN RETURN; END IF;
  UPDATE @claim SET weight = a_weight WHERE session = a_session AND id = a_id;
  IF was.held THEN
    UPDATE @line SET held = held - (was.weight - a_weight) WHERE namespace = a_namespace AND line = a_line;
  END IF;
  PERFORM @admit(a_namespace, a_line);
END
$$;

-- Null: the session is gone. Else JSON: whether somebody else has died, [id, reason] of what was evicted, and, where
-- the roster does not match, [id, line, held, token] of all that there is.
CREATE FUNCTION @beat(a_session text, a_count bigint, a_held bigint, a_checksum bigint, a_unsettled text[])
  RETURNS text LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
  space text;
  tally record;
BEGIN
  -- Whoever beats believes in its locks for as long as this says.
  PERFORM @durable();
  UPDATE @session SET expires = clock_timestamp() + ttl WHERE id = a_session AND expires > clock_timestamp()
    RETURNING namespace INTO space;
  IF NOT FOUND THEN RETURN NULL; END IF;
  SELECT count(*) AS count, count(*) FILTER (WHERE held) AS held,
      coalesce(sum(serial), 0) % 4294967296 AS checksum INTO tally
    FROM @claim WHERE session = a_session AND id <> ALL (a_unsettled);
  RETURN json_build_object(
    'dead', EXISTS (SELECT FROM @session WHERE namespace = space AND expires <= clock_timestamp()),
    'evicted', (SELECT json_agg(json_build_array(id, evicted)) FROM @claim
      WHERE session = a_session AND evicted IS NOT NULL),
    'index', CASE WHEN tally.count <> a_count OR tally.held <> a_held OR tally.checksum <> a_checksum THEN (
      SELECT coalesce(json_agg(json_build_array(id, line, held, token::text)), '[]')
        FROM @claim WHERE session = a_session
    ) END
  );
END
$$;

-- Those of these claims that hold or were evicted: JSON, [id, token if it holds, reason].
CREATE FUNCTION @look(a_session text, a_ids text[])
  RETURNS text LANGUAGE plpgsql AS $$
#variable_conflict use_column
BEGIN
  RETURN (SELECT json_agg(json_build_array(id, CASE WHEN held THEN token::text END, evicted))
    FROM @claim WHERE session = a_session AND id = ANY (a_ids) AND (held OR evicted IS NOT NULL));
END
$$;

-- Ends a session. Answers whether there is more to do: then it is to be called again.
CREATE FUNCTION @shut(a_session text, a_namespace text)
  RETURNS boolean LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
  their record;
  count integer := 0;
BEGIN
  DELETE FROM @session WHERE id = a_session;
  FOR their IN
    SELECT DISTINCT line, hashtextextended(a_namespace || E'\x1f' || line, 0) AS key
      FROM @claim WHERE session = a_session ORDER BY key LIMIT ${LINES_AT_ONCE}
  LOOP
    PERFORM pg_advisory_xact_lock(their.key);
    PERFORM @empty(a_namespace, their.line);
    count := count + 1;
  END LOOP;
  RETURN count = ${LINES_AT_ONCE};
END
$$;

-- Takes the dead out of every line, and mends those where somebody waits and rows were deleted by hand. A line with rows that
-- can't be counted is left as it is, and any of them come first, so that it can't keep the others from their turn. Answers in how
-- many milliseconds to look again: -1 no need to, -2 at once.
CREATE FUNCTION @sweep(a_namespace text, a_session text)
  RETURNS bigint LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
  their record;
  count integer := 0;
BEGIN
  PERFORM @bury(a_namespace);
  FOR their IN
    SELECT line, hashtextextended(a_namespace || E'\x1f' || line, 0) AS key FROM (
      SELECT c.line FROM @claim c LEFT JOIN @session s ON s.id = c.session
        LEFT JOIN @line l ON l.namespace = c.namespace AND l.line = c.line
        WHERE c.namespace = a_namespace GROUP BY c.line, l.line, l.waiting, l.held
        HAVING bool_or(s.id IS NULL)
          OR (bool_or(NOT c.held) AND (l.line IS NULL OR l.waiting <> count(*) FILTER (WHERE NOT c.held)
            OR l.held <> coalesce(sum(c.weight) FILTER (WHERE c.held), 0)))
        ORDER BY random() LIMIT ${LINES_AT_ONCE}
    ) AS chosen ORDER BY key
  LOOP
    PERFORM pg_advisory_xact_lock(their.key);
    BEGIN
      PERFORM @empty(a_namespace, their.line);
      count := count + 1;
    EXCEPTION WHEN data_exception THEN
      NULL;
    END;
  END LOOP;
  IF count = ${LINES_AT_ONCE} THEN RETURN -2; END IF;
  RETURN @next(a_namespace, a_session);
END
$$;

-- Forgets lines that nobody has used for a while, one cleaner at a time. Their tokens live on in the floor. An enter
-- that meets a row on its way out waits for the commit and makes a new one, above the floor. Answers whether there is
-- more to do.
CREATE FUNCTION @clean(a_namespace text)
  RETURNS boolean LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
  cleaned bigint;
  highest bigint;
BEGIN
  PERFORM FROM @floor WHERE namespace = a_namespace FOR UPDATE SKIP LOCKED;
  IF NOT FOUND THEN RETURN false; END IF;
  WITH idle AS (
    SELECT ctid FROM @line
      WHERE namespace = a_namespace AND held = 0 AND waiting = 0
        AND used < clock_timestamp() - interval '${IDLE_SECONDS} seconds'
      LIMIT ${LINES_CLEANED_AT_ONCE} FOR UPDATE SKIP LOCKED
  ), gone AS (
    DELETE FROM @line WHERE ctid = ANY (ARRAY(SELECT ctid FROM idle)) RETURNING last_token
  ) SELECT count(*), max(last_token) INTO cleaned, highest FROM gone;
  IF cleaned > 0 THEN
    UPDATE @floor SET token = greatest(token, highest) WHERE namespace = a_namespace;
  END IF;
  RETURN cleaned = ${LINES_CLEANED_AT_ONCE};
END
$$;

-- Whether there is such a claim. It stays until its session leaves it, or is dead.
CREATE FUNCTION @evict(a_namespace text, a_name text, a_id text, a_reason text)
  RETURNS boolean LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
  owner text;
BEGIN
  PERFORM @durable();
  UPDATE @claim SET evicted = a_reason
    WHERE namespace = a_namespace AND line IN ('l' || a_name, 's' || a_name) AND id = a_id
    RETURNING session INTO owner;
  IF NOT FOUND THEN RETURN false; END IF;
  -- The beat brings the reason.
  PERFORM @tell(inbox, 'evicted ' || a_id) FROM @session WHERE id = owner;
  RETURN true;
END
$$;
`;

/** Whose functions and operators ours mean, whatever is first in the search_path of whoever calls them. */
const OWN_PATH = 'SET search_path = pg_catalog, pg_temp';

/**
 * Every function, in the order in which they can be made. A function that is there already is replaced. One with more
 * arguments than before is made beside the old one; the new ones have defaults, so that older versions can call what they know.
 */
export function routines(names: Names): string[] {
  const texts = (ROUTINES + ADVISORY_ROUTINES)
    .replaceAll('CREATE FUNCTION', 'CREATE OR REPLACE FUNCTION')
    .replaceAll('LANGUAGE plpgsql AS', `LANGUAGE plpgsql ${OWN_PATH} AS`)
    .replaceAll(/@(\w+)/g, (_, word: string) => names.of(word))
    .split('$$;\n');
  return texts.slice(0, -1).map((text) => `${text.trim()}\n$$`);
}
