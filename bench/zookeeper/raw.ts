/** The least that ZooKeeper can do: make an ephemeral node, and delete it. Who finds it taken polls. */
import { setTimeout } from 'node:timers/promises';
import { ZooKeeperClient } from '../../src/engines/zookeeper/client/client.js';
import { CODE, isStatus } from '../../src/engines/zookeeper/client/status.js';

const POLL_MS = 10;

export class RawLocks {
  readonly client: ZooKeeperClient;

  private constructor(client: ZooKeeperClient) {
    this.client = client;
  }

  static async open(port: number): Promise<RawLocks> {
    const servers = [{ host: '127.0.0.1', port }];
    const client = new ZooKeeperClient({ servers, timeoutMs: 60_000, pings: true, random: Math.random });
    await client.open(10_000);
    await client.make('/raw', 'persistent');
    return new RawLocks(client);
  }

  async use(name: string): Promise<void> {
    await this.take(name);
    await this.client.delete(`/raw/${name}`);
  }

  async take(name: string): Promise<void> {
    for (;;) {
      try {
        await this.client.create(`/raw/${name}`, { data: Buffer.from('raw'), mode: 'ephemeral' });
        return;
      } catch (error) {
        if (!isStatus(error, CODE.nodeExists)) throw error;
      }
      await setTimeout(POLL_MS);
    }
  }

  close(): Promise<void> {
    return this.client.close();
  }
}
