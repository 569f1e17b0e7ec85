import type { TestedBug } from '../test-run.js';

const NODE = 'engines/redis/redlock/protocol.ts';
const STORE = 'engines/redis/redlock/store.ts';
const BALLOT = 'test/engines/redis/ballot.test.ts';
const REDLOCK = 'test/engines/redis/redlock.test.ts';

export const redlock: readonly TestedBug[] = [
  {
    name: 'half of an even number of nodes is a majority',
    edits: [
      {
        file: 'engines/redis/redlock/quorum.ts',
        find: 'Math.floor(nodes.length / 2) + 1',
        replace: 'Math.ceil(nodes.length / 2)',
      },
    ],
    foundBy: { file: REDLOCK, test: 'of 4 for each of two users: neither is granted, and then everybody is served' },
  },
  {
    name: 'whoever reaches half of the nodes decides for all',
    edits: [
      {
        file: STORE,
        find: 'if (accepted >= this.#quorum.size) return { token: BigInt(token) };',
        replace: 'if (accepted > votes.length / 2) return { token: BigInt(token) };',
      },
    ],
    foundBy: { file: REDLOCK, test: 'of 4 are no majority: who reaches no more is granted nothing' },
  },
  {
    name: 'a lock that had to be set again counts as renewed',
    edits: [{ file: STORE, find: '(Number(answer) === 1 ? renewed', replace: '(Number(answer) >= 1 ? renewed' }],
    foundBy: { file: REDLOCK, test: 'that finds the lock on two of five only tells the loss' },
  },
  {
    name: 'nodes that do not answer a beat count as having lost the lock',
    edits: [{ file: STORE, find: 'missing[at]! >= this.#veto;', replace: 'missing[at]! + silent >= this.#veto;' }],
    foundBy: { file: REDLOCK, test: 'that most nodes do not answer is neither a renewal nor a loss' },
  },
  {
    name: 'two claims are accepted with one token',
    edits: [{ file: NODE, find: 'if token <= highest then', replace: 'if token < highest then' }],
    foundBy: { file: BALLOT, test: 'is accepted once: whoever comes with the same one is too low' },
    sample: true,
  },
  {
    name: 'a token may be as far behind the clock of a node as it likes',
    edits: [
      { file: NODE, find: 'if math.abs(token - now) > tolerance then', replace: 'if token - now > tolerance then' },
    ],
    foundBy: { file: BALLOT, test: 'far behind the clock of the node is refused' },
  },
  {
    name: 'a node that has just started takes part at once',
    edits: [{ file: NODE, find: "if missing > 0 then return answer('young', missing) end", replace: '' }],
    foundBy: { file: BALLOT, test: 'is refused by a node that has just started' },
  },
  {
    name: 'a node is given back a lock that another has had since',
    edits: [
      {
        file: NODE,
        find: "elseif not value and (tonumber(redis.pcall('GET', memory)) or 0) <= tonumber(token) then",
        replace: 'elseif not value then',
      },
    ],
    foundBy: { file: BALLOT, test: 'that another has had since is not set again' },
  },
  {
    name: 'a try that failed gives back what the next one got',
    edits: [
      {
        file: NODE,
        find: "if ARGV[3] ~= '' and tonumber(string.sub(value, #ARGV[1] + 2)) > tonumber(ARGV[3]) then return 0 end\n",
        replace: '',
      },
    ],
    foundBy: { file: BALLOT, test: 'that a later try of its owner got is not given back with an earlier one' },
  },
  {
    name: 'a release does not ask whose lock it is',
    edits: [
      {
        file: NODE,
        find: 'if not owns(value, ARGV[1]) then return 0 end\n',
        replace: 'if not value then return 0 end\n',
      },
    ],
    foundBy: { file: BALLOT, test: 'of one-1 is not freed, renewed or taken by two-1' },
  },
  {
    name: 'what a beat tells as lost stays where it was put back',
    edits: [
      {
        file: 'kit/slot-session.ts',
        find: '    if (seat.token !== undefined) void this.#drop(seat);\n',
        replace: '',
      },
    ],
    foundBy: {
      file: 'test/unit/kit/slot-session/beat.test.ts',
      test: 'gives back what it tells as lost, also where the store has put it back',
    },
  },
  {
    name: 'a release does not wait for the beat before it, which brings back what it frees',
    edits: [{ file: 'engines/redis/redlock/store.ts', find: '        await this.#beating.get(node);\n', replace: '' }],
    foundBy: { file: REDLOCK, test: 'brings back nothing that was left meanwhile' },
  },
];
