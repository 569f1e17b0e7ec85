import type { EngineBug } from '../test-run.js';

export const memory: readonly EngineBug[] = [];
