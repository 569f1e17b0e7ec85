import type { EngineBug } from '../test-run.js';

export const mysqlRow: readonly EngineBug[] = [];
