/** A server whose certificate is for the name localhost and for no address. It says nothing, and counts who was let in. */
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { createServer } from 'node:tls';
import { LOOPBACK } from '../servers/ports.js';

const file = (name: string): string => join(import.meta.dirname, 'mysql/tls', name);

export interface NamedServer extends AsyncDisposable {
  readonly port: number;
  /** A file with the certificate of its authority. */
  readonly ca: string;
  /** Who believed it. */
  readonly believers: () => number;
}

export async function startNamedServer(): Promise<NamedServer> {
  let believers = 0;
  const keys = { cert: readFileSync(file('named.pem')), key: readFileSync(file('named.key')) };
  const server = createServer({ ...keys, ALPNProtocols: ['h2'] }, (socket) => {
    believers += 1;
    socket.on('error', () => {});
    socket.destroy();
  });
  server.listen(0, LOOPBACK);
  await once(server, 'listening');
  const address = server.address();
  return {
    port: typeof address === 'object' && address !== null ? address.port : 0,
    ca: file('named-ca.pem'),
    believers: () => believers,
    [Symbol.asyncDispose]: async () => void server.close(),
  };
}
