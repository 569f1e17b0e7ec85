/** A server whose machine takes no connection any more: Node.js leaves such a socket behind, and then does not exit. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { connect } from 'node:net';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { LOOPBACK } from '../../servers/ports.js';

const LISTENER = `
const server = require('node:net').createServer();
server.listen({ port: 0, host: '${LOOPBACK}', backlog: 1 }, () => console.log(server.address().port));
`;

const USER = `
import { Holdfast } from 'holdfast';
const locks = new Holdfast(process.env.LOCKS, { ttl: '2s' });
await locks.mutex('a').acquire({ timeout: '300ms' }).catch(({ code }) => console.log(code));
await locks.close();
`;

/** For a busy machine. A process that is kept by its socket would stay for minutes. */
const EXITS_WITHIN_MS = 45_000;

export function testExit(scheme: string): void {
  test('a process whose connection is never taken exits all the same', async () => {
    const listener = spawn(process.execPath, ['-e', LISTENER], { stdio: ['ignore', 'pipe', 'inherit'] });
    const [line] = (await once(listener.stdout, 'data')) as [Buffer];
    const port = Number(line.toString());
    listener.kill('SIGSTOP');
    // The kernel takes a few connections for it; whoever comes then waits.
    const crowd = Array.from({ length: 8 }, () => connect(port, LOOPBACK).on('error', () => {}));
    try {
      const user = spawn(process.execPath, ['--input-type=module', '-e', USER], {
        cwd: join(import.meta.dirname, '../../..'),
        env: { ...process.env, LOCKS: `${scheme}://${LOOPBACK}:${port}` },
        stdio: ['ignore', 'pipe', 'inherit'],
        timeout: EXITS_WITHIN_MS,
        killSignal: 'SIGKILL',
      });
      let printed = '';
      user.stdout.on('data', (text: Buffer) => (printed += text.toString()));
      // Its streams are at their end too, which 'exit' does not say.
      expect(await once(user, 'close')).toEqual([0, null]);
      expect(printed).toBe('HOLDFAST_ENGINE\n');
    } finally {
      for (const socket of crowd) socket.destroy();
      listener.kill('SIGKILL');
    }
  });
}
