/** The least that etcd can do: put a key if there is none, and delete it. Who finds it taken polls. */
import { setTimeout } from 'node:timers/promises';
import { EtcdClient } from '../../src/engines/etcd/client/client.js';
import { IS, TARGET } from '../../src/engines/etcd/client/messages.js';

const CALLING = { withinMs: 10_000, repeatable: true };
const POLL_MS = 10;

export class RawLocks {
  readonly client: EtcdClient;
  readonly #lease: bigint;

  private constructor(client: EtcdClient, lease: bigint) {
    this.client = client;
    this.#lease = lease;
  }

  static async open(port: number): Promise<RawLocks> {
    const client = new EtcdClient({ members: [{ host: '127.0.0.1', port }], random: Math.random });
    const { id } = await client.leaseGrant(3_600n, CALLING);
    return new RawLocks(client, id);
  }

  async use(name: string): Promise<void> {
    const key = Buffer.from(name);
    const absent = { target: TARGET.create, result: IS.equal, key, createRevision: 0n };
    const take = { compare: [absent], success: [{ put: { key, value: Buffer.from('raw'), lease: this.#lease } }] };
    while (!(await this.client.txn(take, CALLING)).succeeded) await setTimeout(POLL_MS);
    await this.client.txn({ success: [{ delete: { key } }] }, CALLING);
  }

  close(): void {
    this.client.close();
  }
}
