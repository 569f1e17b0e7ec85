/**
 * A register is one node, swapped by its version (kit/swapped-registers.ts). A majority has it on disk before we hear that
 * it was written.
 */
import type { SeenText, SwappedTexts } from '../../kit/swapped-registers.js';
import type { ZooKeeperClient } from './client/client.js';
import { CODE, isStatus } from './client/status.js';
import { explained } from './errors.js';
import type { Paths } from './keys.js';

export class RegisterNodes implements SwappedTexts<number> {
  readonly #client: () => Promise<ZooKeeperClient>;
  readonly #paths: Paths;

  constructor(client: () => Promise<ZooKeeperClient>, paths: Paths) {
    this.#client = client;
    this.#paths = paths;
  }

  async look(name: string): Promise<SeenText<number> | undefined> {
    const client = await this.#client();
    const path = this.#paths.register(name);
    try {
      const [, { data, stat }] = await Promise.all([client.sync(), client.getData(path)]);
      return { text: data.toString(), version: stat.version };
    } catch (error) {
      if (isStatus(error, CODE.noNode)) return undefined;
      return explained(Promise.reject(error));
    }
  }

  async swap(name: string, seen: number | undefined, json: string): Promise<boolean> {
    const client = await this.#client();
    const path = this.#paths.register(name);
    const data = Buffer.from(json);
    try {
      if (seen === undefined) await client.create(path, { data, mode: 'persistent' });
      else await client.setData(path, data, seen);
      return true;
    } catch (error) {
      if (isStatus(error, CODE.badVersion, CODE.nodeExists)) return false;
      if (!isStatus(error, CODE.noNode)) return explained(Promise.reject(error));
    }
    if (seen === undefined) await explained(client.make(path.slice(0, path.lastIndexOf('/')), 'persistent'));
    return false;
  }
}
