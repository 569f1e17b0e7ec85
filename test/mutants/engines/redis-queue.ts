import type { EngineBug } from '../test-run.js';

export const redisQueue: readonly EngineBug[] = [];
