/** Programs that once broke a promise, each named by it. They run before the random ones. */
import type { Actor, InstanceSpec, LockRef, Options, Program, Step, Steps } from './program.js';

export interface Fixed {
  readonly name: string;
  readonly program: Program;
}

const TTL_MS = 1_000;

function fixed(name: string, ...actors: readonly (Steps | Actor)[]): Fixed {
  const all = actors.map((actor) => ('steps' in actor ? actor : { instance: 0, steps: actor }));
  const count = 1 + Math.max(...all.map(({ instance }) => instance));
  const instances = Array.from({ length: count }, (): InstanceSpec => ({ ttl: TTL_MS, cohort: true }));
  return {
    name,
    program: { seed: 1, network: { delayMs: 5, loss: 0, twice: 0, pushLoss: 0 }, instances, actors: all },
  };
}

/** The same with round trips so long that other things happen meanwhile. */
function slowly({ name, program }: Fixed): Fixed {
  return { name, program: { ...program, network: { ...program.network, delayMs: 60 } } };
}

/** The same with round trips of about a millisecond. */
function quickly({ name, program }: Fixed): Fixed {
  return { name, program: { ...program, network: { ...program.network, delayMs: 0.5 } } };
}

/** The same with room for so many waiters in each instance. */
function withRoomFor(maxWaiters: number, { name, program }: Fixed): Fixed {
  return { name, program: { ...program, instances: program.instances.map((one) => ({ ...one, maxWaiters })) } };
}

/** A task of another instance. */
function other(...steps: Steps): Actor {
  return { instance: 1, steps };
}

function run(
  lock: LockRef,
  as: string,
  body: Steps,
  more: { options?: Options; expect?: string; withinMs?: number } = {},
): Step {
  return { do: 'run', lock, as, body, ...more };
}

function pause(ms: number): Step {
  return { do: 'pause', ms };
}

const RELEASE_OUTER: Step = { do: 'release', lease: 'outer' };
const RIVAL: Actor = other(pause(20), run('mutex a', 'rival', [pause(300)], { expect: 'granted' }));

const INSIDE_NOW: readonly Fixed[] = [
  fixed('who waits inside a lease that is released takes the real lock', [
    run('mutex a', 'outer', [
      {
        do: 'together',
        branches: [
          [run('mutex a', 'first', [pause(50)])],
          [pause(1), run('mutex a', 'second', [], { expect: 'granted' })],
          [pause(10), RELEASE_OUTER],
        ],
      },
    ]),
  ]),
  fixed('who asks while a reader hears of its loss is not let in on what was lost', [
    { do: 'acquire', lock: 'read a', as: 'lost' },
    { do: 'onLost', lease: 'lost', steps: [{ do: 'acquire', lock: 'read a', as: 'next' }] },
    { do: 'evict', name: 'a', place: 0 },
    pause(100),
  ]),
  fixed(
    'after an early release, run takes the real lock',
    [run('mutex a', 'outer', [RELEASE_OUTER, pause(60), run('mutex a', 'inner', [pause(20)], { expect: 'granted' })])],
    RIVAL,
  ),
  fixed(
    'after an early release, a waiter of the same instance is not joined by who was inside',
    [run('mutex a', 'outer', [RELEASE_OUTER, run('mutex a', 'inner', [pause(20)])])],
    [pause(20), run('mutex a', 'rival', [pause(60)])],
  ),
  fixed(
    'after an early release, tryAcquire asks the engine',
    [run('mutex a', 'outer', [RELEASE_OUTER, pause(100), { do: 'try', lock: 'mutex a', as: 'again', expect: 'busy' }])],
    RIVAL,
  ),
  fixed(
    'after the release of one of all(), the real lock is taken',
    [
      {
        do: 'all',
        locks: ['mutex a', 'mutex b'],
        as: 'both',
        body: [{ do: 'release', lease: 'both0' }, pause(60), { do: 'acquire', lock: 'mutex a', as: 'again' }],
      },
    ],
    RIVAL,
  ),
  fixed(
    'after the release of a term, the real lock is taken',
    [
      {
        do: 'lead',
        name: 'a',
        as: 'term',
        body: [{ do: 'release', lease: 'term' }, pause(60), run('mutex a', 'again', [])],
      },
    ],
    RIVAL,
  ),
  fixed(
    'after a downgrade and the release of the reader, the real lock is taken',
    [
      run('write a', 'outer', [
        { do: 'downgrade', lease: 'outer', as: 'reader' },
        { do: 'release', lease: 'reader' },
        pause(60),
        run('read a', 'again', []),
      ]),
    ],
    RIVAL,
  ),
  fixed('the release of an outer lease inside a nested run does not wait for it', [
    run('mutex a', 'outer', [run('mutex a', 'inner', [RELEASE_OUTER])]),
  ]),
  fixed('the release of an outer lease does not wait for a nested acquire of the same code', [
    run('mutex a', 'outer', [
      { do: 'acquire', lock: 'mutex a', as: 'inner' },
      RELEASE_OUTER,
      { do: 'release', lease: 'inner' },
    ]),
  ]),
  fixed(
    'a lease that is released early stays in the engine until the inner lease ends',
    [run('mutex a', 'outer', [run('mutex a', 'inner', [{ do: 'detach', steps: [RELEASE_OUTER] }, pause(200)])])],
    RIVAL,
  ),
  fixed('the end of an outer run waits for inner runs that nobody awaits', [
    run('mutex a', 'outer', [{ do: 'detach', steps: [run('mutex a', 'inner', [pause(100)])] }, pause(1)]),
  ]),
  fixed(
    'within takes leases of the same instance only',
    [{ do: 'acquire', lock: 'mutex a', as: 'outer' }, pause(300)],
    other(pause(100), {
      do: 'acquire',
      lock: 'mutex a',
      as: 'inner',
      options: { within: 'outer' },
      expect: 'HOLDFAST_CONFIG',
    }),
  ),
];

const DOWNGRADE: readonly Fixed[] = [
  slowly(
    fixed(
      'no sibling writer enters while a downgrade is under way',
      [
        run('write a', 'outer', [
          {
            do: 'together',
            branches: [
              [{ do: 'downgrade', lease: 'outer', as: 'reader' }],
              [pause(1), run('write a', 'sibling', [pause(300)], { expect: 'HOLDFAST_DEADLOCK' })],
            ],
          },
          pause(300),
        ]),
      ],
      other(pause(20), run('read a', 'theirs', [pause(300)])),
    ),
  ),
  fixed(
    'a nested downgrade ends with the maxHold of what it is inside of',
    [
      run(
        'write a',
        'outer',
        [
          { do: 'acquire', lock: 'write a', as: 'inner', options: { within: 'outer' } },
          { do: 'acquire', lock: 'read a', as: 'innermost', options: { within: 'inner' } },
          { do: 'detach', steps: [{ do: 'downgrade', lease: 'inner', as: 'reader' }] },
          pause(200),
          { do: 'release', lease: 'innermost' },
          pause(200),
        ],
        { options: { maxHold: 100 } },
      ),
    ],
    [pause(50), run('write a', 'rival', [pause(300)])],
  ),
  fixed(
    'a loss while a downgrade waits rejects it',
    [
      run('write a', 'outer', [
        { do: 'detach', steps: [run('read a', 'inner', [pause(400)])] },
        pause(1),
        { do: 'downgrade', lease: 'outer', as: 'reader', expect: 'HOLDFAST_LOST' },
        pause(300),
      ]),
    ],
    other(pause(100), { do: 'evict', name: 'a', place: 0 }),
  ),
  slowly(
    fixed('a run that ends while its downgrade is under way leaves no reader behind', [
      run('write a', 'outer', [
        { do: 'together', branches: [[{ do: 'downgrade', lease: 'outer', as: 'reader' }], [{ do: 'throw' }]] },
      ]),
    ]),
  ),
  fixed('a downgrade gives a reader with a larger token', [
    { do: 'acquire', lock: 'write a', as: 'writer' },
    { do: 'downgrade', lease: 'writer', as: 'reader', expect: 'granted' },
    { do: 'get', lease: 'reader', expect: 'done' },
    { do: 'release', lease: 'reader', expect: 'true' },
  ]),
];

const FENCES: readonly Fixed[] = [
  fixed('a reader that is let in after the downgrade is inside a reader', [
    { do: 'acquire', lock: 'write a', as: 'writer' },
    { do: 'acquire', lock: 'write a', as: 'inner', options: { within: 'writer' } },
    { do: 'detach', steps: [{ do: 'acquire', lock: 'read a', as: 'late', options: { within: 'writer' } }] },
    pause(10),
    { do: 'detach', steps: [{ do: 'downgrade', lease: 'writer', as: 'reader' }] },
    pause(10),
    { do: 'release', lease: 'inner' },
    pause(50),
    { do: 'set', lease: 'late', expect: 'HOLDFAST_CONFIG' },
  ]),
  fixed('a read lock inside a write lock is the writer to the register', [
    run('write a', 'outer', [
      { do: 'set', lease: 'outer', expect: 'done' },
      run('read a', 'inner', [
        { do: 'get', lease: 'inner', expect: 'done' },
        { do: 'set', lease: 'inner', expect: 'done' },
      ]),
      { do: 'set', lease: 'outer', expect: 'done' },
    ]),
  ]),
  fixed('a nested downgrade is still the writer to the register', [
    run('write a', 'outer', [
      run('write a', 'inner', [
        { do: 'downgrade', lease: 'inner', as: 'reader' },
        { do: 'get', lease: 'reader', expect: 'done' },
      ]),
      { do: 'set', lease: 'outer', expect: 'done' },
    ]),
  ]),
];

const TIME: readonly Fixed[] = [
  fixed(
    'a timeout keeps time though nobody can be asked who holds',
    [run('mutex a', 'theirs', [pause(2_000)])],
    other(
      pause(50),
      { do: 'detach', steps: [pause(100), { do: 'fault', what: 'cut', ms: 700 }] },
      {
        do: 'acquire',
        lock: 'mutex a',
        as: 'mine',
        options: { timeout: 200 },
        expect: 'HOLDFAST_TIMEOUT',
        withinMs: 300,
      },
    ),
  ),
  fixed(
    'a timeout of all() does not wait for what is given back',
    [run('mutex b', 'theirs', [pause(2_000)])],
    other(
      pause(50),
      { do: 'detach', steps: [pause(100), { do: 'fault', what: 'cut', ms: 700 }] },
      { do: 'all', locks: ['mutex a', 'mutex b'], as: 'both', options: { timeout: 200 }, withinMs: 300 },
    ),
  ),
  fixed(
    'a try whose session is lost on its way does not wait in line',
    [
      pause(50),
      { do: 'acquire', lock: 'mutex c', as: 'mine' },
      {
        do: 'together',
        branches: [[{ do: 'try', lock: 'mutex b', as: 'tried' }], [{ do: 'stall', ms: 1_500 }]],
      },
    ],
    other(run('mutex b', 'theirs', [pause(4_000)])),
  ),
  fixed('maxHold ends a lease by the clock, however late the timer', [
    run('mutex a', 'outer', [{ do: 'stall', ms: 300 }, pause(10)], { options: { maxHold: 50 } }),
  ]),
  fixed('what remains is never more than what is left of maxHold', [
    { do: 'acquire', lock: 'mutex a', as: 'mine', options: { maxHold: 100 } },
    pause(50),
  ]),
  fixed(
    'maxHold stays armed while a release waits for inner leases',
    [
      run('mutex a', 'outer', [{ do: 'detach', steps: [run('mutex a', 'inner', [pause(1_500)])] }, pause(1)], {
        options: { maxHold: 100 },
      }),
    ],
    RIVAL,
  ),
  slowly(
    fixed('once does not begin its work with a lease that is over', [
      { do: 'once', name: 'a', as: 'job', atMost: 30, body: [pause(1)] },
      { do: 'once', name: 'b', as: 'job', atMost: 60, body: [pause(1)] },
    ]),
  ),
  fixed(
    'a crowd whose time is over together costs one look',
    [run('semaphore s', 'holder', [pause(2_000)], { options: { permits: 3 } })],
    Array.from({ length: 6 }, (_, i): Step => ({
      do: 'detach',
      steps: [
        pause(300),
        { do: 'acquire', lock: 'semaphore s', as: `waiter${i}`, options: { timeout: 300 }, expect: 'HOLDFAST_TIMEOUT' },
      ],
    })),
  ),
  fixed(
    'a timeout is no fault of the engine while its cohort goes from claim to claim',
    ...Array.from({ length: 4 }, (_, i): Steps => [
      pause(1 + i),
      run('mutex a', `one${i}`, [pause(20)]),
      run('mutex a', `two${i}`, [pause(20)]),
    ]),
    ...Array.from({ length: 20 }, (_, i): Steps => [
      pause(40 + i),
      { do: 'acquire', lock: 'mutex a', as: `late${i}`, options: { timeout: 11 }, expect: 'HOLDFAST_TIMEOUT' },
    ]),
  ),
  fixed(
    'a reader that asks when the time of a cohort is over gets in beside its readers',
    [run('read a', 'first', [pause(2_000)])],
    [pause(100), run('read a', 'second', [], { expect: 'granted', withinMs: 300 })],
  ),
  fixed('no abort handler runs inside a getter', [run('mutex a', 'outer', [{ do: 'stall', ms: 1_500 }, pause(10)])]),
];

const DEADLOCKS: readonly Fixed[] = [
  fixed(
    'all() against nested runs in the other order: one of them is refused',
    [pause(1), { do: 'all', locks: ['mutex a', 'mutex b'], as: 'both', body: [] }],
    [run('mutex b', 'outer', [pause(100), run('mutex a', 'inner', [])])],
  ),
  fixed(
    'nested runs in two orders: one of them is refused',
    [run('mutex a', 'outer', [pause(100), run('mutex b', 'inner', [])])],
    [run('mutex b', 'outer2', [pause(100), run('mutex a', 'inner2', [])])],
  ),
  fixed(
    'a wait that has a timeout is no reason to refuse another',
    [run('mutex a', 'outer', [pause(50), run('mutex b', 'inner', [], { options: { timeout: 200 } })])],
    [run('mutex b', 'outer2', [pause(150), run('mutex a', 'inner2', [], { expect: 'granted' })])],
  ),
  fixed(
    'readers that only share are no cycle',
    [run('read a', 'outer', [pause(100), run('mutex b', 'inner', [], { expect: 'granted' })])],
    [run('mutex b', 'outer2', [pause(200), run('read a', 'inner2', [], { expect: 'granted' })])],
  ),
];

/** Cycles that go through what is inside a turn, and not through its own run. */
const HIDDEN_DEADLOCKS: readonly Fixed[] = [
  fixed('a cycle through the floor that a downgrade has left behind', [
    run('write a', 'outer', [
      {
        do: 'together',
        branches: [
          [run('write a', 'inner', [pause(60), run('mutex b', 'wanted', [])])],
          [pause(10), { do: 'downgrade', lease: 'outer', as: 'reader' }],
          [pause(20), run('mutex b', 'held', [run('read a', 'behind', [])])],
        ],
      },
    ]),
  ]),
  fixed(
    'a cycle through a writer that is still one for the engine',
    [
      run('write a', 'outer', [
        {
          do: 'together',
          branches: [
            [run('write a', 'inner', [pause(100), run('mutex b', 'wanted', [])])],
            [pause(20), { do: 'downgrade', lease: 'outer', as: 'reader' }],
          ],
        },
      ]),
    ],
    [pause(30), run('mutex b', 'held', [pause(30), run('read a', 'behind', [])])],
  ),
  fixed(
    'a writer that will go by itself blocks no reader for ever',
    [run('read a', 'outer', [pause(150), run('mutex b', 'wanted', [], { expect: 'granted' })])],
    [
      pause(80),
      { do: 'acquire', lock: 'write a', as: 'writer', options: { timeout: 300 }, expect: 'HOLDFAST_TIMEOUT' },
    ],
    [pause(20), run('mutex b', 'held', [pause(120), run('read a', 'behind', [], { expect: 'granted' })])],
  ),
  fixed(
    'a cycle through a semaphore of which one holds too much',
    [run('semaphore s', 'two', [pause(100), run('mutex b', 'wanted', [])], { options: { permits: 2 } })],
    [run('mutex b', 'held', [pause(100), run('semaphore s', 'also two', [], { options: { permits: 2 } })])],
  ),
  fixed(
    'a cycle through what is inside by hand',
    [run('mutex a', 'outer', [pause(400)])],
    [pause(100), run('mutex a', 'inner', [pause(100), run('mutex b', 'wanted', [])], { options: { within: 'outer' } })],
    [run('mutex b', 'held', [pause(120), run('mutex a', 'behind', [])])],
  ),
];

const SMALL: readonly Fixed[] = [
  withRoomFor(
    1,
    fixed('who waits inside a lock counts among the waiters, and who only tries does not', [
      run('mutex a', 'outer', [
        {
          do: 'together',
          branches: [
            [run('mutex a', 'first', [pause(200)])],
            [pause(1), run('mutex a', 'second', [])],
            [
              pause(50),
              { do: 'try', lock: 'mutex b', as: 'free', expect: 'granted' },
              { do: 'acquire', lock: 'mutex c', as: 'refused', expect: 'HOLDFAST_CONFIG' },
            ],
          ],
        },
      ]),
    ]),
  ),
  fixed('what a leader throws after it has lost its term is thrown', [
    {
      do: 'lead',
      name: 'a',
      as: 'term',
      body: [{ do: 'evict', name: 'a', place: 0 }, pause(100), { do: 'throw' }],
      expect: 'thrown',
    },
  ]),
  fixed('what a user throws after a loss is thrown as it is', [
    run('mutex a', 'lost', [pause(100), { do: 'throw' }], { options: { maxHold: 20 }, expect: 'thrown' }),
  ]),
];

const CLOSE: readonly Fixed[] = [
  fixed('an acquire in an abort listener during close() is told that it is closed', [
    { do: 'acquire', lock: 'mutex a', as: 'mine' },
    {
      do: 'onLost',
      lease: 'mine',
      steps: [{ do: 'acquire', lock: 'mutex b', as: 'late', expect: 'HOLDFAST_CLOSED' }],
    },
    { do: 'close' },
  ]),
  fixed(
    'close() lets a running function end with its lock',
    [run('mutex a', 'outer', [pause(300)], { expect: 'granted' })],
    [pause(100), { do: 'close', expect: 'done', withinMs: 500 }],
    other(pause(200), run('mutex a', 'rival', [pause(300)])),
  ),
  fixed(
    'close() lets once and all() end, and what they acquire meanwhile is served',
    [
      {
        do: 'once',
        name: 'a',
        as: 'job',
        body: [
          pause(300),
          { do: 'acquire', lock: 'mutex b', as: 'more', expect: 'granted' },
          { do: 'release', lease: 'more' },
        ],
        expect: 'ran',
      },
    ],
    [{ do: 'all', locks: ['mutex c', 'mutex d'], as: 'both', body: [pause(300)], expect: 'granted' }],
    [pause(100), { do: 'close', expect: 'done' }],
  ),
  fixed(
    'close({ drain: 0 }) ends running functions at once',
    [run('mutex a', 'outer', [pause(300)], { expect: 'HOLDFAST_LOST' })],
    [pause(100), { do: 'close', drain: 0, expect: 'done', withinMs: 200 }],
  ),
  fixed(
    'a drain that is over ends running functions',
    [run('mutex a', 'outer', [pause(3_000)], { expect: 'HOLDFAST_LOST' })],
    [pause(100), { do: 'close', drain: 200, expect: 'done', withinMs: 500 }],
  ),
  fixed(
    'a second close() shortens the first',
    [run('mutex a', 'outer', [pause(3_000)], { expect: 'HOLDFAST_LOST' })],
    [pause(100), { do: 'close', drain: 2_500, expect: 'done', withinMs: 500 }],
    [pause(300), { do: 'close', drain: 0, expect: 'done', withinMs: 200 }],
  ),
  fixed('close() inside a run of its own does not wait for that run', [
    run('mutex a', 'outer', [{ do: 'close', drain: 4_000, expect: 'done', withinMs: 500 }, pause(10)]),
  ]),
  fixed(
    'close() tells waiters, and all who come later, that it is closed',
    [pause(100), { do: 'acquire', lock: 'mutex a', as: 'mine', expect: 'HOLDFAST_CLOSED' }],
    [
      pause(200),
      { do: 'close', expect: 'done' },
      { do: 'try', lock: 'mutex b', as: 'later', expect: 'HOLDFAST_CLOSED' },
      { do: 'evict', name: 'a', place: 0, expect: 'HOLDFAST_CLOSED' },
    ],
    other(run('mutex a', 'theirs', [pause(500)])),
  ),
  fixed(
    'close() passes no lock that it releases on to a waiter',
    [
      { do: 'acquire', lock: 'mutex a', as: 'held' },
      { do: 'pause', ms: 20 },
      { do: 'close', expect: 'done' },
    ],
    [pause(1), run('mutex a', 'waiter', [], { expect: 'HOLDFAST_CLOSED' })],
  ),
  // When it is asked for again is a matter of a few milliseconds, so each instance closes at another moment.
  quickly(
    fixed(
      'what is tried again keeps no process alive after close()',
      ...Array.from({ length: 20 }, (_, instance): Actor => ({
        instance,
        steps: [
          { do: 'acquire', lock: `mutex b${instance}`, as: `known${instance}` },
          { do: 'fault', what: 'deafen', ms: 100 },
          { do: 'detach', steps: [{ do: 'acquire', lock: `mutex a${instance}`, as: `asked${instance}` }] },
          pause(250 + instance * 5),
          { do: 'close', expect: 'done' },
        ],
      })),
    ),
  ),
  fixed('no function begins once its instance closes', [
    { do: 'acquire', lock: 'read a', as: 'reader' },
    {
      do: 'together',
      branches: [
        [run('read a', 'late', [{ do: 'try', lock: 'read a', as: 'nested' }], { expect: 'HOLDFAST_CLOSED' })],
        [{ do: 'close', drain: 500 }],
      ],
    },
  ]),
  fixed(
    'close() releases what acquire gave at once',
    [{ do: 'acquire', lock: 'mutex a', as: 'mine' }, run('mutex b', 'outer', [pause(600)])],
    [pause(100), { do: 'close', expect: 'done' }],
    other(pause(200), { do: 'acquire', lock: 'mutex a', as: 'theirs', expect: 'granted', withinMs: 200 }),
  ),
];

export const PROGRAMS: readonly Fixed[] = [
  ...INSIDE_NOW,
  ...DOWNGRADE,
  ...FENCES,
  ...TIME,
  ...DEADLOCKS,
  ...HIDDEN_DEADLOCKS,
  ...SMALL,
  ...CLOSE,
];
