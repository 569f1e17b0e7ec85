import { warnOnce } from '../../kit/warn-once.js';

export function warnUnguarded(): void {
  warnOnce(
    'This Redis user may not call INFO, so a restart or a failover can’t be noticed: locks that were lost with it may ' +
      'be granted again at once. Allow it (ACL: +info), or set epochGuard to false if that does not matter.',
  );
}
