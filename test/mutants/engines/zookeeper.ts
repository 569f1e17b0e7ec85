import type { EngineBug } from '../test-run.js';

export const zookeeper: readonly EngineBug[] = [];
