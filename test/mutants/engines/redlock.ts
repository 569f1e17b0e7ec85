import type { EngineBug } from '../test-run.js';

export const redlock: readonly EngineBug[] = [];
