/**
 * The functions of the `advisory` strategy. They run on the connection that holds the locks.
 *
 * Beside a lock's own key there is one for those who wait for it: they hold it shared, so whoever frees the lock sees by
 * trying to have it alone whether anybody has to be told. A token comes from the line's row, as in ../protocol.ts; such a
 * line has no claims, and its name begins with `a`.
 */
export const ADVISORY_ROUTINES = String.raw`
-- One above the last token of the line and of all lines that were forgotten, and not below the clock.
CREATE FUNCTION @mint(a_namespace text, a_line text)
  RETURNS bigint LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
  micros bigint := extract(epoch FROM clock_timestamp()) * 1000000;
  minted bigint;
BEGIN
  PERFORM @durable();
  UPDATE @line SET last_token = greatest(last_token + 1, micros), used = clock_timestamp()
    WHERE namespace = a_namespace AND line = a_line RETURNING last_token INTO minted;
  IF NOT FOUND THEN
    -- Readers may come at the same time.
    INSERT INTO @line AS l (namespace, line, capacity, held, waiting, last_token, used)
      VALUES (a_namespace, a_line, 0, 0, 0,
        greatest((SELECT token + 1 FROM @floor WHERE namespace = a_namespace), micros), clock_timestamp())
      ON CONFLICT (namespace, line) DO UPDATE SET
        last_token = greatest(l.last_token + 1, excluded.last_token), used = excluded.used
      RETURNING last_token INTO minted;
  END IF;
  RETURN minted;
END
$$;

-- The token, or null if it is busy.
CREATE FUNCTION @take(a_key bigint, a_shared boolean, a_namespace text, a_line text)
  RETURNS bigint LANGUAGE plpgsql AS $$
BEGIN
  IF a_shared THEN
    IF NOT pg_try_advisory_lock_shared(a_key) THEN RETURN NULL; END IF;
  ELSIF NOT pg_try_advisory_lock(a_key) THEN
    RETURN NULL;
  END IF;
  RETURN @mint(a_namespace, a_line);
END
$$;

-- Tells those who wait, if there are any. A lock of the transaction: one of the session would stay where this is cancelled.
CREATE FUNCTION @wake(a_waiting bigint, a_channel text)
  RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  IF NOT pg_try_advisory_xact_lock(a_waiting) THEN
    PERFORM @tell(a_channel, a_waiting::text);
  END IF;
END
$$;

-- Whether it was held.
CREATE FUNCTION @drop(a_key bigint, a_shared boolean, a_waiting bigint, a_channel text)
  RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
  held boolean;
BEGIN
  held := CASE WHEN a_shared THEN pg_advisory_unlock_shared(a_key) ELSE pg_advisory_unlock(a_key) END;
  PERFORM @wake(a_waiting, a_channel);
  RETURN held;
END
$$;

-- Frees all that this connection has of a key. For after a statement that was refused: a lock of the session is not undone
-- with it, and nobody knows how far it got. The bound is for servers whose unlock always says yes.
CREATE FUNCTION @free(a_key bigint, a_waiting bigint, a_channel text)
  RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
  -- The last of each is not held, which the server would warn us of.
  PERFORM set_config('client_min_messages', 'error', true);
  FOR tried IN 1..1000 LOOP
    EXIT WHEN NOT pg_advisory_unlock_shared(a_key);
  END LOOP;
  FOR tried IN 1..1000 LOOP
    EXIT WHEN NOT pg_advisory_unlock(a_key);
  END LOOP;
  PERFORM @wake(a_waiting, a_channel);
  RETURN true;
END
$$;

-- Exclusive to shared, without a moment in between: a connection never stands in its own way.
CREATE FUNCTION @lighten(a_key bigint, a_waiting bigint, a_channel text)
  RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  PERFORM pg_advisory_lock_shared(a_key);
  PERFORM pg_advisory_unlock(a_key);
  PERFORM @wake(a_waiting, a_channel);
END
$$;
`;
