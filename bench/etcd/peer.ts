/**
 * npm's etcd3, as it is used: a lease of its own for each lock, which is revoked to release it. Its Lock never waits, so
 * who finds it taken tries again.
 */
import { setTimeout } from 'node:timers/promises';
import { Etcd3, EtcdLockFailedError, type Lock } from 'etcd3';

const POLL_MS = 10;

export class PeerLocks {
  readonly #client: Etcd3;

  constructor(port: number) {
    this.#client = new Etcd3({ hosts: `http://127.0.0.1:${port}` });
  }

  async acquire(name: string): Promise<Lock> {
    for (;;) {
      try {
        return await this.#client.lock(`peer/${name}`).ttl(10).acquire();
      } catch (error) {
        if (!(error instanceof EtcdLockFailedError)) throw error;
        await setTimeout(POLL_MS);
      }
    }
  }

  async use(name: string): Promise<void> {
    const lock = await this.acquire(name);
    await lock.release();
  }

  close(): void {
    this.#client.close();
  }
}
