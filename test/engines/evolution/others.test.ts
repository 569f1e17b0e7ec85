import { evolution } from './kit.js';

evolution({
  'mysql-row': { naive: '✗', holdfast: '✓✓', mostInside: [1, 1] },
  'mysql-for-update': { naive: '✗✗', holdfast: '✓✓', mostInside: [1, 1] },
  // Crowds in one column each: nobody is inside by name.
  'mysql-version': { naive: '✓✗', holdfast: '✓', mostInside: [0, 0] },
  'zookeeper-herd': { naive: '✗', holdfast: '✓', mostInside: [0, 0] },
  // Memcached forgets for everybody, and only the fence covers that.
  'memcached-eviction': { naive: '✗', holdfast: '○✓✓', mostInside: [2, 2] },
});
