/**
 * Watches of keys, all on one stream. A stream that breaks is opened again on another member, and each watch goes on at the
 * first revision that it has not seen, so nothing is missed. Where history has been compacted meanwhile, the watch ends
 * with a gap: whoever watches looks for himself, and begins anew.
 */
import { performance, setTimeout } from '../../../core/real-time.js';
import type { Stream, StreamListener } from './connection.js';
import { MOST } from './frames.js';
import { FILTER, type KeyValue, WatchRequest, WatchResponse } from './messages.js';
import { type EtcdError, STATUS } from './status.js';

export interface WatchTarget {
  readonly key: Uint8Array;
  /** All keys from `key` to here, this one not included. Absent: the one key. */
  readonly rangeEnd?: Uint8Array;
  /** The first revision to hear of. */
  readonly from: bigint;
  /** Hear of deletions only. */
  readonly deletionsOnly?: boolean;
}

export interface WatchListener {
  changed(changes: readonly Change[]): void;
  /** History is gone, and the watch is over. */
  gap(): void;
}

export interface Change {
  readonly deleted: boolean;
  readonly kv: KeyValue;
}

export interface Watch {
  close(): void;
}

interface OpenWatch {
  readonly target: WatchTarget;
  readonly listener: WatchListener;
  from: bigint;
}

export interface WatchStreams {
  open(path: string, listener: StreamListener): Promise<Stream>;
  /** A watch was refused: the token that the stream was opened with may have expired. */
  refused(): void;
}

const FIRST_PAUSE_MS = 20;
const LONGEST_PAUSE_MS = 1_000;
/** Before it is told that history is gone: who looks and watches again at once must not do so without end. */
const GAP_PAUSE_MS = 20;
/** A stream that lived this long was a good one: when it breaks, the next is opened without much of a pause. */
const GOOD_MS = 5_000;
const DELETED = 1;

export class Watches {
  readonly #streams: WatchStreams;
  readonly #watches = new Map<bigint, OpenWatch>();
  #lastId = 0n;
  #stream: Stream | undefined;
  #opening = false;
  #closed = false;
  #pauseMs = FIRST_PAUSE_MS;

  constructor(streams: WatchStreams) {
    this.#streams = streams;
  }

  watch(target: WatchTarget, listener: WatchListener): Watch {
    this.#lastId += 1n;
    const id = this.#lastId;
    const watch = { target, listener, from: target.from };
    this.#watches.set(id, watch);
    if (this.#stream) this.#create(this.#stream, id, watch);
    else this.#open();
    return {
      close: () => {
        if (this.#watches.delete(id)) this.#stream?.send(WatchRequest.encode({ cancel: { watchId: id } }));
      },
    };
  }

  close(): void {
    this.#closed = true;
    this.#watches.clear();
    this.#stream?.close();
  }

  #open(): void {
    if (this.#opening || this.#closed) return;
    this.#opening = true;
    const startedAt = performance.now();
    let ended = false;
    const again = (): void => {
      if (ended) return;
      ended = true;
      this.#stream = undefined;
      if (performance.now() - startedAt > GOOD_MS) this.#pauseMs = FIRST_PAUSE_MS;
      this.#openLater();
    };
    const listener = {
      message: (message: Buffer) => this.#heard(WatchResponse.decode(message, MOST.keys.items)),
      ended: (error: EtcdError) => {
        if (error.status === STATUS.resourceExhausted) this.#skip();
        again();
      },
    };
    this.#streams.open('/etcdserverpb.Watch/Watch', listener).then((stream) => {
      if (ended) return;
      this.#opening = false;
      if (this.#closed) return stream.close();
      this.#stream = stream;
      for (const [id, watch] of this.#watches) this.#create(stream, id, watch);
    }, again);
  }

  #openLater(): void {
    this.#opening = true;
    const pauseMs = this.#pauseMs;
    this.#pauseMs = Math.min(2 * pauseMs, LONGEST_PAUSE_MS);
    setTimeout(() => {
      this.#opening = false;
      if (this.#watches.size > 0) this.#open();
    }, pauseMs).unref();
  }

  /** More has happened than we can be told of, and would be told again on the next stream: none of it is any more. */
  #skip(): void {
    for (const [id, watch] of this.#watches) this.#gap(id, watch);
  }

  #gap(id: bigint, { listener }: OpenWatch): void {
    this.#watches.delete(id);
    setTimeout(() => {
      if (!this.#closed) listener.gap();
    }, GAP_PAUSE_MS).unref();
  }

  #create(stream: Stream, watchId: bigint, { target, from }: OpenWatch): void {
    const { key, rangeEnd, deletionsOnly } = target;
    stream.send(
      WatchRequest.encode({
        create: {
          key,
          rangeEnd: rangeEnd ?? NOTHING,
          startRevision: from,
          filters: deletionsOnly ? [FILTER.noPut] : [],
          watchId,
        },
      }),
    );
  }

  #heard({ watchId, canceled, compactRevision, header, events }: WatchResponse): void {
    const watch = this.#watches.get(watchId);
    // A watch that is refused has no id. What has one and is not known to us was closed by us.
    if (canceled && compactRevision === 0n && (watch || watchId < 0n)) {
      this.#streams.refused();
      this.#stream?.close();
      return;
    }
    if (!watch) return;
    if (canceled) return this.#gap(watchId, watch);
    if (events.length === 0) return;
    if (header) watch.from = header.revision + 1n;
    watch.listener.changed(events.flatMap(({ type, kv }) => (kv ? [{ deleted: type === DELETED, kv }] : [])));
  }
}

const NOTHING = new Uint8Array(0);
