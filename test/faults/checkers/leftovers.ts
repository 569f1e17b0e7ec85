/** Whoever closes leaves nothing behind, and no secret was ever written anywhere. */
import { found, type Finding, violation } from '../finding.js';
import type { Run } from '../run.js';

export function checkClean(run: Run): Finding {
  return found(
    looks(run),
    run.leftovers
      .filter(({ what }) => what !== 'secret')
      .map((event) => violation('clean', undefined, `A ${event.what} was left behind: ${event.detail}.`, [event])),
  );
}

export function checkSecrets(run: Run): Finding {
  return found(
    looks(run),
    run.leftovers
      .filter(({ what }) => what === 'secret')
      .map((event) => violation('secrets', undefined, `A secret was written: ${event.detail}.`, [event])),
  );
}

/** It is looked for once, after everything was closed. */
function looks({ phases }: Run): number {
  return phases.has('over') ? 1 : 0;
}
