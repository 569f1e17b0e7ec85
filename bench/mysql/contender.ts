/** One of several processes with several waiters each; asked for a number, every waiter takes so many turns. */
import { Holdfast } from 'holdfast';
import { mysql } from 'holdfast/mysql';
import { createPool } from 'mysql2/promise';
import { repeat, together } from '../measure.js';
import { useOurs } from '../memory/suite.js';
import { getLockByHand } from './suite.js';
import { serve, setup } from '../child.js';

const { port, byHand, waiters } = setup() as { port: number; byHand: boolean; waiters: number };
const pool = createPool({ host: '127.0.0.1', port, user: 'root', database: 'test', connectionLimit: 10 });
const locks = new Holdfast(mysql(pool));
if (!byHand) await locks.ready();
const lock = locks.mutex('contended');
serve((turns) => together(waiters, () => repeat(Number(turns), () => (byHand ? getLockByHand(pool) : useOurs(lock)))));
