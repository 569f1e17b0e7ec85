import type { EngineBug } from '../test-run.js';

export const mysqlVersion: readonly EngineBug[] = [];
