import type { EngineBug } from '../test-run.js';

export const memcached: readonly EngineBug[] = [];
