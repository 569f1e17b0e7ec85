import type { Clock } from '../../src/core/clock.js';
import type { Engine, EngineLine, EngineSource, Registers, Session } from '../../src/core/engine.js';

const THERE_MS = 10;

/**
 * More than the margin of a ttl of a second, which is a tenth: who counts validity from an answer, rather than from the
 * question, holds on to what is another's already.
 */
const BACK_MS = 110;

type Far = <T>(call: () => Promise<T>) => Promise<T>;

/**
 * An engine at the other end of a slow line, which is as slow under a virtual clock. Calls take their time both ways.
 * What the engine tells unasked comes at once, so it may be here before the answer that it follows.
 */
export function distant(source: EngineSource, clock: Clock): EngineSource {
  const sleep = (ms: number): Promise<void> => new Promise((resolve) => void clock.timer(ms, resolve));
  const far: Far = async (call) => {
    await sleep(THERE_MS);
    try {
      return await call();
    } finally {
      await sleep(BACK_MS);
    }
  };
  return { ...source, connect: async (setup) => distantEngine(await source.connect(setup), far) };
}

function distantEngine(engine: Engine, far: Far): Engine {
  const { registers } = engine;
  return {
    open: (options, listener) => far(async () => distantSession(await engine.open(options, listener), far)),
    ...(engine.inspect && {
      async *inspect(query) {
        yield* await far(async () => {
          const lines: EngineLine[] = [];
          for await (const line of engine.inspect!(query)) lines.push(line);
          return lines;
        });
      },
    }),
    ...(engine.evict && { evict: (name, claimId, reason) => far(() => engine.evict!(name, claimId, reason)) }),
    ...(registers && { registers: distantRegisters(registers, far) }),
    [Symbol.asyncDispose]: () => engine[Symbol.asyncDispose](),
  };
}

function distantSession(session: Session, far: Far): Session {
  return {
    ttlMs: session.ttlMs,
    enter: (claim) => far(() => session.enter(claim)),
    leave: (claim) => far(() => session.leave(claim)),
    reweigh: (claim) => far(() => session.reweigh(claim)),
    beat: (roster) => far(() => session.beat(roster)),
    close: () => far(() => session.close()),
  };
}

function distantRegisters(registers: Registers, far: Far): Registers {
  return {
    read: (name, fence) => far(() => registers.read(name, fence)),
    write: (name, value, token, keepMs) => far(() => registers.write(name, value, token, keepMs)),
  };
}
