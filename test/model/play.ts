/** One program, from its first step to an end at which nothing may be left. */
import { NAMES } from './generate.js';
import type { Program } from './program.js';
import { Player } from './player.js';
import { Reference } from './reference.js';
import { World } from './world.js';

/** For how long users go on in bad weather, in good weather, and when everybody else lets go. */
const FAULTY_MS = 5_000;
const HEALED_MS = 4_000;
const LETTING_GO_MS = 60_000;
/** Longer than any ttl, and than any message may be late. */
const AFTERWARDS_MS = 8_000;

interface Violation {
  /** Which promise: what a shrunk program must still break. */
  readonly rule: string;
  readonly what: string;
}

export interface Outcome {
  readonly violations: readonly Violation[];
  readonly events: number;
  readonly grants: number;
}

export interface Telling {
  readonly trace?: boolean;
  /** Rules that are known to be broken. */
  readonly ignore?: ReadonlySet<string>;
}

export async function play(program: Program, { trace, ignore }: Telling = {}): Promise<Outcome> {
  const violations: Violation[] = [];
  const log = (who: string, what: string): void => {
    if (trace) console.log(`${world.scheduler.now.toFixed(1).padStart(9)}  ${who.padEnd(9)} ${what}`);
  };
  const violate = (rule: string, what: string): void => {
    log('REFERENCE', `${rule}: ${what}`);
    if (violations.length < 20 && !ignore?.has(rule) && !reference.vague)
      violations.push({ rule, what: `at ${world.scheduler.now.toFixed(1)} ms: ${what}` });
  };
  const world: World = new World(program, violate);
  const reference = new Reference(() => world.server.space.inspect({}), violate);
  const player = new Player(world, reference, violate, log);
  await live(program, world, reference, player, violate, () => violations.length > 0);
  return { violations, events: world.scheduler.events, grants: reference.grants };
}

async function live(
  program: Program,
  world: World,
  reference: Reference,
  player: Player,
  violate: (rule: string, what: string) => void,
  broken: () => boolean,
): Promise<void> {
  const watch = (): void => {
    reference.look(true);
    player.checkTimes();
  };
  const done = (): boolean => player.done || broken();
  for (const { instance, steps } of program.actors) {
    player.begin(steps, { client: world.clients[instance % world.clients.length]!, fns: [] });
  }
  await world.run(FAULTY_MS, watch, done);
  world.heal();
  await world.run(HEALED_MS, watch, done);
  for (let ms = 0; ms < LETTING_GO_MS && !done(); ms += 500) {
    player.releaseAll();
    await world.run(500, watch, done);
  }
  // Also what was granted in the last moment.
  player.releaseAll();
  await world.run(AFTERWARDS_MS, watch, done);
  if (broken()) return;
  expectNoDeadlock(player, violate);
  if (player.done) {
    await world.run(AFTERWARDS_MS, watch, broken);
    expectEmptyLines(world, 'after all was released', violate);
  }
  for (const client of world.clients) void player.close(client);
  await world.run(AFTERWARDS_MS, watch, done);
  for (const { what, client } of player.unsettled) violate('hangs', `${client.name}: ${what} never settled`);
  if (!player.done && player.unsettled.length === 0) violate('hangs', 'a function never ended');
  await world.run(AFTERWARDS_MS, watch, broken);
  expectEmptyLines(world, 'after all were closed', violate);
  expectNoRegisters(world, violate);
}

/** Everybody has let go of what nobody runs inside of, and still somebody waits: then they wait for each other. */
function expectNoDeadlock({ done, unsettled }: Player, violate: (rule: string, what: string) => void): void {
  const stuck = new Set(unsettled.map(({ client }) => client));
  // A cycle through several instances is not to be seen from inside of one.
  const whats = unsettled.map(({ what }) => what).join(', ');
  // Any holder of a semaphore may serve a waiter, so none of them is said to block it. A leader that loses every term by its own
  // stalls campaigns for ever.
  if (whats.includes('semaphore') || whats.includes('lead of')) return;
  if (done || stuck.size > 1 || [...stuck].some(({ closing }) => closing)) return;
  violate('deadlock', `nobody refused: ${whats || 'a function waits'}`);
}

function expectEmptyLines({ server }: World, when: string, violate: (rule: string, what: string) => void): void {
  server.space.reap(server.time);
  for (const { kind, name, claims } of server.space.inspect({})) {
    violate(
      'left',
      `${when} the ${kind} ${name} has ${claims.length} claims: ${claims.map(({ id }) => id).join(', ')}`,
    );
  }
}

/** `once` has to remember nothing, unless it was told to with `atLeast`. */
function expectNoRegisters({ server }: World, violate: (rule: string, what: string) => void): void {
  for (const name of NAMES) {
    const last = server.space.read(`once\u001f${name}`, undefined, server.time);
    if (last.ok && last.value) violate('left', `once has left a register of ${name}`);
  }
}
