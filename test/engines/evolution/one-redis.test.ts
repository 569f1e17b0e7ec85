import { evolution } from './kit.js';

evolution({
  recursion: { naive: '✗✗', holdfast: '✓', mostInside: [1, 1] },
  spin: { naive: '✗✗', holdfast: '✓✓', mostInside: [1, 1] },
  'two-commands': { naive: '✗✗', holdfast: '✓✓', mostInside: [1, 1] },
  'foreign-del': { naive: '✗✗', holdfast: '✓✓✓', mostInside: [2, 1] },
  'check-then-del': { naive: '✗✗', holdfast: '✓', mostInside: [2, 1] },
  lua: { naive: '✓○', holdfast: '✓', mostInside: [2, 1] },
  reentrant: { naive: '✓✗', holdfast: '✓✓', mostInside: [2, 1] },
  watchdog: { naive: '✓○', holdfast: '✓✓', mostInside: [2, 1] },
});
