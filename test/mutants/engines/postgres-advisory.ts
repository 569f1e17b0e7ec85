import type { EngineBug } from '../test-run.js';

export const postgresAdvisory: readonly EngineBug[] = [];
