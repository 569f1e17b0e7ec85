import { test } from 'vitest';
import { memory } from '../../src/engines/memory/index.js';
import { conformance } from '../../src/conformance/index.js';
import { distant } from '../unit/distant-engine.js';
import { selfWindingClock } from '../unit/self-winding-clock.js';

const clock = selfWindingClock();

conformance({ test, engine: 'memory', source: () => memory('conformance'), clock });

conformance({
  test,
  engine: 'memory, far away',
  source: () => distant(memory('far away'), clock),
  ttlMs: 1_000,
  clock,
});
