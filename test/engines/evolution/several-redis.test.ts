import { evolution } from './kit.js';

evolution({
  failover: { naive: '✗', holdfast: '✓✓✓', mostInside: [2, 1] },
  redlock: { naive: '✗', holdfast: '✓✓✓', mostInside: [2, 1] },
  // The lock is right; what is lost is an update.
  fencing: { naive: '✗', holdfast: '✓✓', mostInside: [1, 1] },
});
