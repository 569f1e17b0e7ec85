/** `flock(1)` made of `proper-lockfile`: takes the lock of a file, runs a shell script, gives the lock back. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { lock } from 'proper-lockfile';

const [, , file, script] = process.argv;
const retries = { retries: 1_000_000, factor: 1, minTimeout: 10, maxTimeout: 10 };
const release = await lock(file, { realpath: false, retries });
await once(spawn('sh', ['-c', script]), 'exit');
await release();
