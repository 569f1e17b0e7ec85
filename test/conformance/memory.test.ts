import { test } from 'vitest';
import { memory } from '../../src/engines/memory/index.js';
import { conformance } from '../../src/testing/index.js';

// Concurrent, because most of the time is spent on waiting for the dead; each case has a namespace of its own.
conformance({ test: test.concurrent, engine: 'memory', source: () => memory('conformance') });
