/**
 * The protocol, as one script. It performs a list of steps, each of them whole, on the three keys of a shard:
 *
 *     sessions   ZSET   session → when it dies, in milliseconds of the server's clock. Only a beat moves that.
 *     state      HASH   shard         last token, longest ttl, since when this epoch lasts, the server's replication id
 *                       s<session>    ttl, when it dies, the tally of its claims (count, held, sum of serials, evicted), inbox
 *                       l<line>       capacity, sum of held weights, number of waiters, frontier (the last granted token)
 *                       c<claim>      serial, weight, since, token, session, line, note, nonce (empty if it held at once)
 *                       e<claim>      why it is to go
 *     order      ZSET   all with score 0, so it is sorted by bytes:
 *                       L<line>⏎<token>⏎<claim>   the line. Tokens have 16 digits: the order of bytes is theirs
 *                       S<session>⏎<claim>        the index of a session's claims
 *                       G<line>                   somebody waits there for the guard to end
 *                       (empty)                   so that the key exists as long as there are sessions
 *
 * A line's id is `l` or `s` (lock, semaphore) and its name, which contains no control character.
 *
 *     head → [A held][B held] | [C waits][D waits] ← tail      a claim holds if its token ≤ frontier
 *                             frontier
 *
 * - All keys are declared with every call, so a migrating slot can't hide one. The three exist together or not at all,
 *   except that the state of a shard without sessions stays for its tokens. If one is missing (deleted, evicted), all
 *   claims are lost: everybody hears it with the next beat and opens again.
 * - Nothing is left of a line without claims. A waiting claim of a dead session is removed when it is met, not skipped.
 * - No step can fail after the first write: a full server refuses only a script that has not written yet, hence the
 *   idle first write where something is to be freed or renewed. A PUBLISH that is forbidden costs the hint, not the step.
 * - A grant is published with the claim's nonce, which its session chose (kit/message.ts). Every other message proves nothing.
 * - Only the server's clock is used. Tokens are max(last + 1, µs): they outlive a lost memory unless the clock goes back.
 * - The epoch guard. After a restart or a failover the memory may lack claims whose owners still believe in them, for at
 *   most their ttl. So nobody new is granted until the longest ttl has passed since the new epoch was noticed (or, where
 *   nothing is remembered, since the server started), and tokens leap by as much. The longest ttl is one that was seen, or one
 *   that a client was told of: a server without a memory has seen none.
 *
 * Cost: enter, leave, reweigh and beat O(log n), and O(log n) for each claim granted on the way; an enter that is blocked
 * while there are dead sessions looks at all claims that hold its line; a beat whose roster differs lists its claims. What
 * would take long (thousands of readers to be let in, a dead session with thousands of claims) is done in several calls.
 *
 * The script stands in script/, in parts that are joined here. Each sees the local variables of those before it:
 *
 *     usual.ts      enter and leave, where nobody else is in the line. Most calls end there
 *     call.ts       what begins and ends any other call
 *     records.ts    the records of the state: their layouts, reading, writing
 *     line.ts       enter and leave, where somebody else is in the line
 *     rare.ts       all other steps (rare-steps.ts), and who comes next (admission.ts)
 */
import { defineScript } from '../client/port.js';
import { BEGIN_CALL, END_CALL } from './script/call.js';
import { LINE } from './script/line.js';
import { RARE } from './script/rare.js';
import { READ_RECORDS } from './script/records.js';
import { USUAL } from './script/usual.js';

/**
 * ARGV: how long the guard lasts at least (ms; 0 without a guard), prefix of inboxes, then the steps: a word and its arguments.
 * Answer: in how many milliseconds to look again (-1: no need to, -2: at once, there is more to do), then theirs.
 */
export const STEPS = defineScript(USUAL + BEGIN_CALL + READ_RECORDS + LINE + RARE + END_CALL);
