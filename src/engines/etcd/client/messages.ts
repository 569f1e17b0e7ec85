/** The messages of etcd's API (v3, rpc.proto) that a lock needs, with the numbers of their fields. */
import { bool, bytes, int64, many, message, one, type Received, string, uint } from './wire.js';

const Header = message({
  clusterId: one(1, int64),
  memberId: one(2, int64),
  revision: one(3, int64),
  /** The member's: grows with every election. */
  raftTerm: one(4, int64),
});

export const KeyValue = message({
  key: one(1, bytes),
  createRevision: one(2, int64),
  modRevision: one(3, int64),
  version: one(4, int64),
  value: one(5, bytes),
  lease: one(6, int64),
});
export type KeyValue = Received<typeof KeyValue>;

export const ORDER = { none: 0, ascending: 1, descending: 2 } as const;
export const SORT = { key: 0, create: 2 } as const;

export const RangeRequest = message({
  key: one(1, bytes),
  rangeEnd: one(2, bytes),
  limit: one(3, int64),
  revision: one(4, int64),
  sortOrder: one(5, uint),
  sortTarget: one(6, uint),
  keysOnly: one(8, bool),
  maxCreateRevision: one(13, int64),
});

export const RangeResponse = message({
  header: one(1, Header),
  kvs: many(2, KeyValue),
  more: one(3, bool),
  count: one(4, int64),
});

const PutRequest = message({ key: one(1, bytes), value: one(2, bytes), lease: one(3, int64) });
const PutResponse = message({ header: one(1, Header) });

const DeleteRequest = message({ key: one(1, bytes), rangeEnd: one(2, bytes) });
const DeleteResponse = message({ header: one(1, Header), deleted: one(2, int64) });

const RequestOp = message({
  range: one(1, RangeRequest),
  put: one(2, PutRequest),
  delete: one(3, DeleteRequest),
});

const ResponseOp = message({
  range: one(1, RangeResponse),
  put: one(2, PutResponse),
  delete: one(3, DeleteResponse),
});

export const IS = { equal: 0, greater: 1, less: 2 } as const;
export const TARGET = { create: 1, mod: 2 } as const;

/** With `rangeEnd` it must be true of every key there; where there is none, of one whose revisions are 0. */
const Compare = message({
  result: one(1, uint),
  target: one(2, uint),
  key: one(3, bytes),
  createRevision: one(5, int64),
  modRevision: one(6, int64),
  rangeEnd: one(64, bytes),
});

export const TxnRequest = message({
  compare: many(1, Compare),
  success: many(2, RequestOp),
  failure: many(3, RequestOp),
});

export const TxnResponse = message({
  header: one(1, Header),
  succeeded: one(2, bool),
  responses: many(3, ResponseOp),
});

export const LeaseGrantRequest = message({ ttl: one(1, int64), id: one(2, int64) });
export const LeaseGrantResponse = message({ header: one(1, Header), id: one(2, int64), ttl: one(3, int64) });

export const LeaseRevokeRequest = message({ id: one(1, int64) });
export const LeaseRevokeResponse = message({ header: one(1, Header) });

export const LeaseKeepAliveRequest = message({ id: one(1, int64) });
/** A lost lease is no error: its ttl is 0. */
export const LeaseKeepAliveResponse = message({ header: one(1, Header), id: one(2, int64), ttl: one(3, int64) });

export const LeaseTimeToLiveRequest = message({ id: one(1, int64), keys: one(2, bool) });
/** A lost lease is no error: its ttl is -1. */
export const LeaseTimeToLiveResponse = message({
  header: one(1, Header),
  id: one(2, int64),
  ttl: one(3, int64),
  grantedTtl: one(4, int64),
  /** As text: there may be very many, and views of what was received are larger than that. */
  keys: many(5, string),
});

export const FILTER = { noPut: 0 } as const;

const WatchCreateRequest = message({
  key: one(1, bytes),
  rangeEnd: one(2, bytes),
  startRevision: one(3, int64),
  filters: many(5, uint),
  watchId: one(7, int64),
});

export const WatchRequest = message({
  create: one(1, WatchCreateRequest),
  cancel: one(2, message({ watchId: one(1, int64) })),
});

const Event = message({ type: one(1, uint), kv: one(2, KeyValue) });

export const WatchResponse = message({
  header: one(1, Header),
  watchId: one(2, int64),
  created: one(3, bool),
  canceled: one(4, bool),
  /** Where the watch would have had to begin earlier than history goes back. */
  compactRevision: one(5, int64),
  cancelReason: one(6, string),
  events: many(11, Event),
});
export type WatchResponse = Received<typeof WatchResponse>;

export const AuthenticateRequest = message({ name: one(1, string), password: one(2, string) });
export const AuthenticateResponse = message({ header: one(1, Header), token: one(2, string) });
