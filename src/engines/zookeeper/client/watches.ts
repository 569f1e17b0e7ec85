/**
 * Who wants to hear of which node. A watch is told of one change and is over: whoever wants more looks, and watches again.
 * Our list is what the next server is told after a connection was lost; it then tells at once what we have missed.
 */
import { EVENT, type NodeEvent } from './messages.js';

/** `data`: the node is changed or goes. `children`: one more or one fewer, or the node goes. */
export type WatchKind = 'data' | 'children';

export class Watches {
  readonly #watchers: Readonly<Record<WatchKind, Map<string, Set<() => void>>>> = {
    data: new Map(),
    children: new Map(),
  };

  add(kind: WatchKind, path: string, watcher: () => void): void {
    const watchers = this.#watchers[kind];
    const known = watchers.get(path);
    if (known) known.add(watcher);
    else watchers.set(path, new Set([watcher]));
  }

  /** The server may still tell us, and nobody hears it. */
  remove(kind: WatchKind, path: string, watcher: () => void): void {
    const watchers = this.#watchers[kind];
    const known = watchers.get(path);
    if (known?.delete(watcher) && known.size === 0) watchers.delete(path);
  }

  tell({ type, path }: NodeEvent): void {
    if (type !== EVENT.childrenChanged) this.#tell('data', path);
    if (type === EVENT.childrenChanged || type === EVENT.deleted) this.#tell('children', path);
  }

  paths(kind: WatchKind): string[] {
    return [...this.#watchers[kind].keys()];
  }

  #tell(kind: WatchKind, path: string): void {
    const told = this.#watchers[kind].get(path);
    this.#watchers[kind].delete(path);
    for (const watcher of told ?? []) watcher();
  }
}
