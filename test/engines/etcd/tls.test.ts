/** `etcds://`, with a server that asks for certificates. */
import { afterAll, beforeAll } from 'vitest';
import { EtcdClient } from '../../../src/engines/etcd/client/client.js';
import { etcd } from '../../../src/engines/etcd/index.js';
import { startEtcd } from '../../servers/etcd.js';
import type { Server } from '../../servers/server.js';
import { certificate, key, testTls, tls } from '../consensus/tls.js';

let server: Server;

beforeAll(async () => {
  server = await startEtcd({
    scheme: 'https',
    args: ['--cert-file', certificate, '--key-file', key, '--trusted-ca-file', certificate, '--client-cert-auth'],
    ready: async ({ port }) => {
      const client = new EtcdClient({ members: [{ host: 'localhost', port, tls }], random: () => 0 });
      try {
        await client.range({ key: Buffer.from('a') }, { withinMs: 1_000 });
        return true;
      } finally {
        client.close();
      }
    },
  });
});

afterAll(() => server.stop());

testTls({ scheme: 'etcds', server: () => server, source: etcd });
