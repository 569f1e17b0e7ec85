/** One of several processes with several waiters each; asked for a number, every waiter takes so many turns. */
import { Holdfast } from 'holdfast';
import { repeat, together } from '../measure.js';
import { RawLocks } from './raw.js';
import { useOurs } from '../memory/suite.js';
import { serve, setup } from '../child.js';

const { port, side, waiters } = setup() as { port: number; side: 'holdfast' | 'raw'; waiters: number };
const locks = new Holdfast(`memcached://127.0.0.1:${port}`);
const raw = new RawLocks(port);
if (side === 'holdfast') await locks.ready();
const use = side === 'holdfast' ? () => useOurs(locks.mutex('contended')) : () => raw.use('raw:contended');
serve((turns) => together(waiters, () => repeat(Number(turns), use)));
