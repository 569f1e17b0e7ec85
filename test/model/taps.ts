/** What the core does to its engine and its clock, watched from outside of it. */
import { AsyncLocalStorage, AsyncResource } from 'node:async_hooks';
import type { Clock, Timer } from '../../src/core/clock.js';
import type { Engine, EngineSource, Session } from '../../src/core/engine.js';

/** Set while a user's code runs, and in whatever that calls or awaits. */
export const usersContext = new AsyncLocalStorage<true>();

export interface EngineTaps {
  /** Before the core hears of it. */
  enterAnswered(): void;
  /** A look at a line begins or ends. */
  looks(name: string | undefined, by: 1 | -1): void;
  /** Something that is nobody's in particular is done in the context of some user. */
  misplaced(what: string): void;
}

export function tapEngine(source: EngineSource, taps: EngineTaps): EngineSource {
  const mindContext = (what: string): void => {
    if (usersContext.getStore()) taps.misplaced(what);
  };
  const tapSession = (session: Session): Session => {
    const enter: Session['enter'] = async (claim) => {
      const place = await session.enter(claim);
      taps.enterAnswered();
      return place;
    };
    const beat: Session['beat'] = (roster) => {
      mindContext('a beat');
      return session.beat(roster);
    };
    return overlay(session, { enter, beat });
  };
  return {
    ...source,
    connect: async (setup) => {
      mindContext('connecting');
      const engine = await source.connect(setup);
      const open: Engine['open'] = async (options, listener) => tapSession(await engine.open(options, listener));
      const inspect: NonNullable<Engine['inspect']> = async function* (query) {
        taps.looks(query.name, 1);
        try {
          yield* engine.inspect!(query);
        } finally {
          taps.looks(query.name, -1);
        }
      };
      return overlay(engine, { open, inspect });
    },
  };
}

/** Timers run in the context in which they were set, as real ones do. Those that keep the process alive are in `alive`. */
export function tapClock(clock: Clock, alive: Set<object>): Clock {
  const timer: Clock['timer'] = (ms, run) => {
    const bound = AsyncResource.bind(run);
    const inner = clock.timer(ms, () => {
      alive.delete(outer);
      bound();
    });
    const outer: Timer = {
      close: () => (alive.delete(outer), inner.close()),
      ref: () => (alive.add(outer), outer),
      unref: () => (alive.delete(outer), outer),
    };
    alive.add(outer);
    return outer;
  };
  return { ...clock, timer };
}

function overlay<T extends object>(object: T, own: Partial<T>): T {
  return new Proxy(object, {
    get: (target, key) => {
      if (key in own) return own[key as keyof T];
      const value: unknown = Reflect.get(target, key);
      return typeof value === 'function' ? (value as (...args: unknown[]) => unknown).bind(target) : value;
    },
  });
}
