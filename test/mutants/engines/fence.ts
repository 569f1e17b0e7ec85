import type { EngineBug } from '../test-run.js';

export const fence: readonly EngineBug[] = [];
