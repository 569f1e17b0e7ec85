import { createServer } from 'node:net';
import { expect, test } from 'vitest';
import { EngineError, Holdfast } from '../../../../src/index.js';
import { freePort } from '../../../servers/ports.js';

const FATAL = 'SFATAL\0C57P01\0Mterminating connection\0\0';

function message(type: string, body: Buffer): Buffer {
  const head = Buffer.alloc(5);
  head.write(type);
  head.writeInt32BE(body.length + 4, 1);
  return Buffer.concat([head, body]);
}

test('a server that says good-bye in the same packet as its welcome ends no process', async () => {
  const welcome = Buffer.concat([
    message('R', Buffer.alloc(4)),
    message('Z', Buffer.from('I')),
    message('E', Buffer.from(FATAL)),
  ]);
  let welcomed = 0;
  const server = createServer((socket) => {
    socket.on('error', () => {});
    socket.once('data', () => {
      welcomed += 1;
      socket.end(welcome);
    });
  });
  const port = await freePort();
  await new Promise<void>((resolve) => server.listen(port, '127.0.0.1', resolve));
  const uncaught: unknown[] = [];
  const hear = (error: unknown): void => void uncaught.push(error);
  process.on('uncaughtException', hear);
  try {
    await using locks = new Holdfast(`postgres://app@127.0.0.1:${port}/app`, { ttl: '3s' });
    await expect(locks.mutex('job').acquire({ timeout: '2s' })).rejects.toBeInstanceOf(EngineError);
  } finally {
    process.off('uncaughtException', hear);
    server.close();
  }
  expect(welcomed).toBeGreaterThan(0);
  expect(uncaught).toEqual([]);
});
