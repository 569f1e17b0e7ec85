import type { EngineBug } from '../test-run.js';

export const optimistic: readonly EngineBug[] = [];
