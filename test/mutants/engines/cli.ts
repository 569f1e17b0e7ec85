import type { EngineBug } from '../test-run.js';

export const commandLine: readonly EngineBug[] = [];
