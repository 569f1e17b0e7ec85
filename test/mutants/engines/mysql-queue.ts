import type { EngineBug } from '../test-run.js';

export const mysqlQueue: readonly EngineBug[] = [];
