/** Servers that belong together: they are stopped together, also when only some of them could be started. */
import { isPaused } from './processes.js';
import type { Server } from './server.js';

export class ServerGroup {
  readonly #servers: Server[] = [];

  /** Those that do start are in the group, so that they are stopped when others do not. */
  async add(starting: readonly Promise<Server>[]): Promise<Server[]> {
    const outcomes = await Promise.allSettled(starting);
    const servers = outcomes.flatMap((outcome) => (outcome.status === 'fulfilled' ? [outcome.value] : []));
    this.#servers.push(...servers);
    throwFirst(outcomes);
    return servers;
  }

  /** A server that hangs in stopping does not keep the others from it. */
  async stop(): Promise<void> {
    throwFirst(await Promise.allSettled(this.#servers.map((server) => server.stop())));
  }
}

/** What `build` answers with owns the group and has to stop it; when `build` fails, nothing is left running. */
export async function startGroup<T>(build: (group: ServerGroup) => Promise<T>): Promise<T> {
  const group = new ServerGroup();
  try {
    return await build(group);
  } catch (error) {
    await group.stop();
    throw error;
  }
}

/** Neither killed nor paused: the others can reach it, and it can answer. */
export function isAwake(server: Server): boolean {
  return server.running && !isPaused(server.pid);
}

function throwFirst(outcomes: readonly PromiseSettledResult<unknown>[]): void {
  for (const outcome of outcomes) if (outcome.status === 'rejected') throw outcome.reason;
}
