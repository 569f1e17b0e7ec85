import type { EngineBug } from '../test-run.js';

export const sqlite: readonly EngineBug[] = [];
