/** A memcached that answers what it likes: it costs an error and a bounded amount of memory. */
import { once } from 'node:events';
import { type AddressInfo, createServer, type Socket } from 'node:net';
import { expect, test } from 'vitest';
import { LOOPBACK } from '../../servers/ports.js';
import { expectHarmless, victimOf } from '../consensus/victim.js';
import { urlOf } from './kit.js';

const MIB = 1024 * 1024;

/** For as long as the other side takes it. */
function flood(socket: Socket, text: string): void {
  const chunk = Buffer.alloc(MIB, text);
  const more = (): void => {
    while (!socket.destroyed && socket.write(chunk));
    if (!socket.destroyed) socket.once('drain', more);
  };
  more();
}

interface Lie {
  readonly name: string;
  /** What the error says of it. */
  readonly said: string;
  readonly tell: (socket: Socket) => void;
}

/** To whatever is asked. */
function answering(text: string): Lie['tell'] {
  return (socket) => void socket.on('data', () => socket.write(text));
}

const LIES: readonly Lie[] = [
  { name: 'a line without end', said: 'a line without an end', tell: (socket) => flood(socket, 'x') },
  { name: 'flags without end', said: 'a line without an end', tell: (socket) => flood(socket, ' c1') },
  { name: 'lines without end', said: 'answered what it should not', tell: (socket) => flood(socket, 'HD\r\n') },
  {
    name: 'a value of 4 GiB',
    said: 'a value of no size',
    tell: (socket) => {
      socket.write('VA 4294967295 c1\r\n');
      flood(socket, 'x');
    },
  },
  { name: 'a value of less than nothing', said: 'a value of no size', tell: answering('VA -1 c-1\r\nx\r\n') },
  {
    name: 'a number that is none',
    said: 'could not be asked',
    tell: answering(`VA 3 c${'9'.repeat(999)}\r\n999\r\n`),
  },
];

test.concurrent.each(LIES)('$name', async ({ said, tell }) => {
  const sockets = new Set<Socket>();
  const server = createServer((socket) => {
    sockets.add(socket);
    socket.on('error', () => {});
    tell(socket);
  });
  server.listen(0, LOOPBACK);
  await once(server, 'listening');
  try {
    const victim = await victimOf(urlOf((server.address() as AddressInfo).port));
    expect(victim.outcomes).toEqual(['HOLDFAST_ENGINE']);
    expect(victim.messages[0]).toContain(said);
    expectHarmless(victim);
    // It comes back after a pause, which grows.
    expect(sockets.size).toBeLessThan(40);
  } finally {
    for (const socket of sockets) socket.destroy();
    server.close();
  }
});
