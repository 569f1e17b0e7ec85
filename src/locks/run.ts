import type { Instance } from '../core/instance.js';
import { ClosedError, type HoldfastError, LeaseLostError } from '../core/errors.js';
import { currentFrame, type Frame } from '../core/reentrancy.js';
import type { Turn } from '../core/turn.js';

export interface InsideOptions {
  /** It is told at once when its instance closes, and what it resolves with then counts. Default: false. */
  readonly yields?: boolean;
}

/**
 * Runs `work` inside these frames, the last of them innermost, and gives their turns back. If one was lost meanwhile the
 * result can't be trusted, so it rejects even though `work` resolved. If `work` threw, its error wins, and the loss becomes
 * its cause where it has none.
 */
export async function runInside<T>(
  instance: Instance,
  frames: readonly Frame[],
  work: () => T | PromiseLike<T>,
  { yields = false }: InsideOptions = {},
): Promise<T> {
  for (const { turn } of frames) {
    turn.notice();
    // It was lost before anything began, or its instance closes: nothing may begin then.
    if (!turn.open || !instance.open) throw await abandon(frames);
  }
  const turns = frames.map(({ turn }) => turn);
  const caller = currentFrame();
  const ended = instance.begin({ frames, yields });
  const end = async (): Promise<LeaseLostError | undefined> => {
    for (const frame of frames) frame.end();
    const before = yields ? undefined : lossOf(turns);
    ended();
    // Leases inside that nobody awaited are waited for here.
    await Promise.all(turns.map((turn) => turn.closeFor(caller)));
    const after = lossOf(turns);
    // An instance that closes after the function has ended takes nothing from it.
    return before ?? (after?.reason === 'released' ? undefined : after);
  };
  let value: T;
  try {
    value = await (frames.at(-1) as Frame).run(work);
  } catch (error) {
    const lost = await end();
    if (lost) explain(error, lost);
    throw error;
  }
  const lost = await end();
  if (lost) throw lost;
  return value;
}

function lossOf(turns: readonly Turn[]): LeaseLostError | undefined {
  for (const turn of turns) {
    const { loss } = turn;
    if (loss) return new LeaseLostError(turn.line.name, loss, turn.hand.token);
  }
  return undefined;
}

async function abandon(frames: readonly Frame[]): Promise<HoldfastError> {
  const turns = frames.map(({ turn }) => turn);
  for (const frame of frames) frame.end();
  const lost = turns.find(({ open }) => !open);
  await Promise.all(turns.map((turn) => turn.close()));
  return lost ? lost.undeliveredError() : new ClosedError();
}

/** Where it can't be told so, the user's error is passed on as it is. */
function explain(error: unknown, lost: LeaseLostError): void {
  try {
    if (error instanceof Error && error.cause === undefined && error.name !== lost.name) error.cause = lost;
  } catch {
    // It is frozen, or has a cause of its own making.
  }
}
