import { once } from 'node:events';
import { type AddressInfo, createServer } from 'node:net';
import { expect, test } from 'vitest';
import { EngineError, Holdfast } from '../../../../src/index.js';

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
  const enough = new AbortController();
  const server = createServer((socket) => {
    socket.on('error', () => {});
    socket.once('data', () => {
      welcomed += 1;
      socket.end(welcome);
      // It came back twice: what the first good-byes do to a process, they have done.
      if (welcomed === 3) enough.abort('it came back');
    });
  });
  await once(server.listen(0, '127.0.0.1'), 'listening');
  const { port } = server.address() as AddressInfo;
  const uncaught: unknown[] = [];
  const hear = (error: unknown): void => void uncaught.push(error);
  process.on('uncaughtException', hear);
  try {
    await using locks = new Holdfast(`postgres://app@127.0.0.1:${port}/app`, { ttl: '15s' });
    await expect(locks.mutex('job').acquire({ signal: enough.signal })).rejects.toBe('it came back');
    await expect(locks.mutex('job').acquire({ timeout: 50 })).rejects.toBeInstanceOf(EngineError);
  } finally {
    process.off('uncaughtException', hear);
    server.close();
  }
  expect(uncaught).toEqual([]);
});
