import type { EngineBug } from '../test-run.js';

export const mysqlGetLock: readonly EngineBug[] = [];
