import type { EngineBug } from '../test-run.js';

export const etcd: readonly EngineBug[] = [];
