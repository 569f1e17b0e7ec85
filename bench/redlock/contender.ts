/** One of several processes with several waiters each; asked for a number, every waiter takes so many turns. */
import { repeat, together } from '../measure.js';
import { serve, setup } from '../child.js';
import { type Side, userOf } from './peers.js';

interface Setup {
  readonly ports: readonly number[];
  readonly side: Side;
  readonly waiters: number;
}

const { ports, side, waiters } = setup() as Setup;
const { use } = await userOf(side, ports);
serve((turns) => together(waiters, () => repeat(Number(turns), () => use('contended'))));
