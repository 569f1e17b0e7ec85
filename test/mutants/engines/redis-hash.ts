import type { EngineBug } from '../test-run.js';

export const redisHash: readonly EngineBug[] = [];
