import type { Engine, EngineSource, Session } from '../../src/core/engine.js';

type Hook = (call: () => unknown) => unknown;

/** Calls of an engine that go another way. Each is handed the call as it would be. A test may change them at any time. */
export type Hooks = Partial<
  Record<'open' | 'enter' | 'leave' | 'reweigh' | 'beat' | 'read' | 'write' | 'inspect', Hook | undefined>
>;

/** The same engine, but for what the hooks do. */
export function hooked(source: EngineSource, hooks: Hooks): EngineSource {
  const by = <T>(name: keyof Hooks, call: () => T): T => (hooks[name] ? (hooks[name](call) as T) : call());
  return { ...source, connect: async (setup) => hookedEngine(await source.connect(setup), by) };
}

type By = <T>(name: keyof Hooks, call: () => T) => T;

function hookedEngine(engine: Engine, by: By): Engine {
  const { registers } = engine;
  return {
    open: (options, listener) => by('open', async () => hookedSession(await engine.open(options, listener), by)),
    ...(engine.inspect && { inspect: (query) => by('inspect', () => engine.inspect!(query)) }),
    ...(engine.evict && { evict: (name, claimId, reason) => engine.evict!(name, claimId, reason) }),
    ...(registers && {
      registers: {
        read: (name, fence) => by('read', () => registers.read(name, fence)),
        write: (name, value, token, keepMs) => by('write', () => registers.write(name, value, token, keepMs)),
      },
    }),
    [Symbol.asyncDispose]: () => engine[Symbol.asyncDispose](),
  };
}

function hookedSession(session: Session, by: By): Session {
  return {
    ttlMs: session.ttlMs,
    enter: (claim) => by('enter', () => session.enter(claim)),
    leave: (claim) => by('leave', () => session.leave(claim)),
    reweigh: (claim) => by('reweigh', () => session.reweigh(claim)),
    beat: (roster) => by('beat', () => session.beat(roster)),
    close: () => session.close(),
  };
}
