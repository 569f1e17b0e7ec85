/** What `holdfast --help` and `holdfast help <command>` say. */
import { usage } from './failure.js';

const OVERVIEW = `holdfast: locks for scripts, cron jobs and deploys: only one of them at a time.

  holdfast run <name> [options] -- command…   run a command while holding a lock
  holdfast ls [prefix]                        who holds what, and who waits
  holdfast inspect <name>                     every claim on one lock, with id and token
  holdfast evict <name> <claim-id>            take a claim away from its holder
  holdfast schema print|apply                 the tables that a database needs for locks
  holdfast help <command>                     more about one of them
  holdfast --version

  holdfast run backup -n -- ./backup.sh                skip it if one is at it still
  holdfast run deploy -w 10m -- make deploy            wait for up to ten minutes
  holdfast run gpu --permits 1 --of 4 -- ./train.py    at most four at a time

Where the locks are
  --url u    a URL like sqlite:/var/lib/app/locks.db. Without it HOLDFAST_URL in the
             environment, which is better for a URL with a password: everybody can
             read a command's arguments. Without either a file of your own that needs
             no server: $XDG_STATE_HOME/holdfast/locks.db, which mostly is
             ~/.local/state/holdfast/locks.db
  --json     listings as JSON, errors as one JSON line on stderr; tokens are strings
`;

const RUN = `holdfast run <name> [options] -- command…

Takes the lock, runs the command, and gives the lock back when the command has
ended. It waits its turn in line, for as long as it takes unless told otherwise,
also for a lock file that is busy.
The lock is renewed while the command runs, and freed if this machine dies.

  -w, --wait d      wait at most this long: 250ms, 10s, 5m, 1h, 1d
  -n, --no-wait     do not wait
  -s, --shared      a read lock: several at a time, none beside one without -s
  --of n            a semaphore of n permits; everybody must give the same n
  --permits k       how many of them to take (default 1)
  --ttl d           how long the lock outlives a machine that fell silent
                    (default 10s)
  --grace d         how long the command has to end by itself when the lock is
                    being lost (default: a fifth of the ttl)
  --busy-exit n     exit with n instead of 75 when the lock is busy
  --wait-all        keep the lock until all that the command started has ended,
                    also what it leaves in the background
  --no-hup          ignore SIGHUP, as under nohup: use it instead of nohup
  --hide-url        the command does not inherit HOLDFAST_URL
  --url u, --json   see holdfast --help

The command
  HOLDFAST_LOCK and HOLDFAST_TOKEN are in its environment. The token grows with
  every grant: a store that refuses smaller ones than it has seen is safe even
  from a command that was frozen for an hour and then goes on writing.
  It inherits HOLDFAST_URL with the rest, and a password that is in it, so that a
  holdfast run inside of it finds the same locks. Where it is none of its business,
  --hide-url takes it away.
  stdin, stdout and stderr are its own. SIGTERM, SIGINT, SIGHUP and SIGQUIT are
  passed on to it and to all that it started; what the keyboard sends it has got
  already, and a cat(1) beside it tells us which of them that is. The lock is kept
  until all of them have ended; what is left a grace after the command itself is
  killed. That holds however long after the signal the command ends, also if it
  only took it for a request to reload. SIGUSR1 and SIGUSR2 are passed on to the
  command alone. During the wait for the lock each of these signals ends the wait.
  A command that ends by itself gives the lock back, also if it left something
  running in the background; see --wait-all. One that a signal has ended, whoever
  sent it, did not end by itself: what it left is asked to end, too.

When the lock is being lost: the engine is out of reach, or somebody evicts us
  The command and all that it started get SIGTERM, and SIGKILL after the grace, so
  that they are gone before anybody else has the lock. Without a terminal that is
  every process of the command's session, with one its descendants. Ctrl-Z stops
  holdfast and all of the command together; when they go on, and the lock was lost
  meanwhile, the command is killed. Only a SIGKILL or SIGSTOP of holdfast itself
  leaves the command running.

Exit codes
  the command's own, or 128+n when signal n ended it (or ended the wait)
  64   wrong usage, also a run of a lock inside a run of the same lock
  69   the engine could not be reached
  75   the lock is busy (see --busy-exit)
  76   the lock was lost, and the command stopped
  77   the lock was lost, and something of the command could not be stopped: it
       belongs to another user
  126  the command can't be executed
  127  the command was not found

Examples
  holdfast run backup -n --busy-exit 0 -- ./backup.sh    cron: busy is no error
  holdfast run catalog -s -- ./report.sh                 readers side by side
  holdfast run db -w 5m -- sh -c './migrate --fence "$HOLDFAST_TOKEN"'
`;

const LS = `holdfast ls [prefix] [--json] [--url u]

One line for every claim on every lock, or on those whose names begin with the
prefix: name, kind (lock, shared, or semaphore with its permits), state (held,
waiting), label (command@host:pid) and age. Locks that nobody holds or waits for
are not listed. With --json an array of lines with their claims.

  holdfast ls db:
  holdfast ls -- "$PREFIX"      in scripts: what begins with - is no option then
  holdfast ls --json | jq -r '.[] | select(.claims | length > 1) | .name'

Exit codes: 0, 64 wrong usage, 69 the engine could not be reached.
`;

const INSPECT = `holdfast inspect <name> [--json] [--url u]

Every claim on one lock in the order of the line: id (for evict), kind, state,
token, label and age. A lock and a semaphore of one name are two lines; both are
shown.

Exit codes: 0 (also for a lock that is free), 64 wrong usage, 69 the engine could
not be reached.
`;

const EVICT = `holdfast evict <name> <claim-id> [--reason text] [--json] [--url u]

Takes a claim away, held or waiting. Its holder is told, with the reason (at most
1 KiB), and lets go; a holder that no longer answers loses it after its ttl. So the
next one is never let in too early. A holdfast run that is evicted stops its command
and exits with 76.

  holdfast inspect deploy
  holdfast evict deploy 1P3Ug5-dBPOF_xh3_528hQ-1 --reason 'stuck since Monday'

Exit codes: 0 done, 1 no such claim, 64 wrong usage, 69 the engine could not be
reached.
`;

const SCHEMA = `holdfast schema print [--url u]
holdfast schema apply [--url u] [--json]

Locks in a database need tables, and some of them functions. They are made with
the first use, if the user of the URL has the rights to. Where it has not, somebody
else makes them: print writes every statement, for a review or a migration tool,
and asks no server; apply brings the database up to date, and may be run by any
number of processes at once, and again and again.

  holdfast schema print --url 'postgres://db/app?schema=locks' > locks.sql
  HOLDFAST_URL=postgres://admin:secret@db/app holdfast schema apply

Engines without a schema (redis, sqlite) have nothing to print and to apply.

Exit codes: 0, 64 wrong usage, 69 the engine could not be reached, or refused,
73 another has the migration lock and did not give it back.
`;

const TOPICS: Readonly<Record<string, string>> = { run: RUN, ls: LS, inspect: INSPECT, evict: EVICT, schema: SCHEMA };

export function helpFor(topic: string | undefined): string {
  if (topic === undefined || topic === 'help') return OVERVIEW;
  const text = Object.hasOwn(TOPICS, topic) ? TOPICS[topic] : undefined;
  if (text === undefined) throw usage(`there is no help on ${JSON.stringify(topic)}; see holdfast --help`);
  return text;
}
