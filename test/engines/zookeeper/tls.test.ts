/** `zookeepers://`, with a server that asks for certificates. */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll } from 'vitest';
import { ZooKeeperClient } from '../../../src/engines/zookeeper/client/client.js';
import { zookeeper } from '../../../src/engines/zookeeper/index.js';
import type { Server } from '../../servers/server.js';
import { startZooKeeper } from '../../servers/zookeeper.js';
import { certificate, testTls, tls } from '../consensus/tls.js';

let server: Server;
let scratch: string;

beforeAll(async () => {
  scratch = mkdtempSync(join(tmpdir(), 'holdfast-zookeeper-tls-'));
  // ZooKeeper wants key and certificate in one file.
  const both = join(scratch, 'both.pem');
  writeFileSync(both, Buffer.concat([tls.key, tls.cert]));
  server = await startZooKeeper({
    tls: true,
    config: {
      serverCnxnFactory: 'org.apache.zookeeper.server.NettyServerCnxnFactory',
      'ssl.keyStore.location': both,
      'ssl.keyStore.type': 'PEM',
      'ssl.trustStore.location': certificate,
      'ssl.trustStore.type': 'PEM',
    },
    ready: async ({ port }) => {
      const servers = [{ host: 'localhost', port, tls }];
      const client = new ZooKeeperClient({ servers, timeoutMs: 10_000, random: () => 0 });
      try {
        await client.open(1_000);
        return true;
      } finally {
        await client.close();
      }
    },
  });
});

afterAll(async () => {
  await server?.stop();
  rmSync(scratch, { recursive: true, force: true });
});

testTls({ scheme: 'zookeepers', server: () => server, source: zookeeper });
