import type { EngineBug } from '../test-run.js';

export const mysqlForUpdate: readonly EngineBug[] = [];
