/** A server whose machine takes no connection any more must not keep a process that has closed its locks. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { connect } from 'node:net';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { LOOPBACK } from '../servers/ports.js';

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

test('a process whose connection is never taken exits all the same', async () => {
  const listener = spawn(process.execPath, ['-e', LISTENER], { stdio: ['ignore', 'pipe', 'inherit'] });
  const [line] = (await once(listener.stdout, 'data')) as [Buffer];
  const port = Number(line.toString());
  listener.kill('SIGSTOP');
  // The kernel takes a few connections for it; whoever comes then waits.
  const crowd = Array.from({ length: 8 }, () => connect(port, LOOPBACK).on('error', () => {}));
  try {
    const user = spawn(process.execPath, ['--input-type=module', '-e', USER], {
      cwd: join(import.meta.dirname, '../..'),
      env: { ...process.env, LOCKS: `zookeeper://${LOOPBACK}:${port}` },
      stdio: ['ignore', 'pipe', 'inherit'],
      timeout: 20_000,
      killSignal: 'SIGKILL',
    });
    let printed = '';
    user.stdout.on('data', (text: Buffer) => (printed += text.toString()));
    expect(await once(user, 'exit')).toEqual([0, null]);
    expect(printed).toBe('HOLDFAST_ENGINE\n');
  } finally {
    for (const socket of crowd) socket.destroy();
    listener.kill('SIGKILL');
  }
});
