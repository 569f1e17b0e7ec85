import type { EngineBug } from '../test-run.js';

export const postgresQueue: readonly EngineBug[] = [];
