/**
 * A process of its own that locks with one library; ours is the built package. It is told once, by its argument, what to
 * do. With a file, it counts: reads a number and writes the next one, under the lock, so many times; the file itself
 * protects nothing, and between read and write others have their turn. Without one, it takes the lock, says so, and keeps
 * it.
 */
import { readFileSync, writeFileSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import { Holdfast } from 'holdfast';
import { redis } from 'holdfast/redis';
import { PEERS } from './slot-peers.mjs';

/** Long enough for another process to come between, if the lock lets it. */
const BETWEEN_MS = 2;

const { library, port, ttlMs, name, key, file, times } = JSON.parse(process.argv[2]);
const lock = Object.hasOwn(PEERS, library) ? lockOfPeer() : lockOfOurs();

if (file === undefined) {
  await lock();
  process.send('holds');
} else {
  for (let time = 0; time < times; time += 1) {
    const unlock = await lock();
    const count = Number(readFileSync(file, 'utf8'));
    await sleep(BETWEEN_MS);
    writeFileSync(file, `${count + 1}`);
    await unlock();
  }
  // Some of them leave timers behind.
  process.exit();
}

function lockOfPeer() {
  const peer = PEERS[library](port, ttlMs);
  return () => peer.lock(name);
}

function lockOfOurs() {
  const source = redis(`redis://127.0.0.1:${port}`, { strategy: library, key: () => key });
  const mutex = new Holdfast(source, { ttl: ttlMs }).mutex(name);
  return async () => {
    const lease = await mutex.acquire();
    return async () => {
      if (!(await lease.release())) throw new Error('the lock was lost');
    };
  };
}

process.once('disconnect', () => process.exit());
