/** The least that memcached can do, on the same connection: add, and delete if it is still that version. Who finds it taken polls. */
import { setTimeout } from 'node:timers/promises';
import { systemClock } from '../../src/core/clock.js';
import { Connection } from '../../src/engines/memcached/client/connection.js';
import { flag } from '../../src/engines/memcached/client/replies.js';

const TTL_S = 11;
const POLL_MS = 10;
const VALUE = 'a value as long as that of a claim';

export class RawLocks implements Disposable {
  readonly #connection: Connection;

  constructor(port: number) {
    const server = { host: '127.0.0.1', port };
    this.#connection = new Connection({ server, user: undefined, password: undefined, clock: systemClock });
  }

  async use(key: string): Promise<void> {
    const add = `ms ${key} ${VALUE.length} ME T${TTL_S} c`;
    let added = await this.#connection.call(add, { value: VALUE });
    while (added.code === 'NS') {
      await setTimeout(POLL_MS);
      added = await this.#connection.call(add, { value: VALUE });
    }
    await this.#connection.call(`md ${key} C${flag(added, 'c')}`);
  }

  [Symbol.dispose](): void {
    this.#connection.close();
  }
}
