import { randomBytes } from 'node:crypto';
import type { Clock } from '../index.js';

/** Where the suite takes its time from unless it is given another clock. */
export const realClock: Clock = {
  now: () => performance.now(),
  wall: () => Date.now(),
  random: () => Math.random(),
  // Another alphabet than the core's ids have: to an engine, an id is any string.
  id: () => randomBytes(16).toString('base64url'),
  timer: (ms, run) => setTimeout(run, ms),
};
