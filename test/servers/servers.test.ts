/** Promises of the servers that other tests rely on. A first run downloads what is not installed: see provide.ts. */
import { execFile, spawn } from 'node:child_process';
import { existsSync } from 'node:fs';
import { mkdir, mkdtemp, readdir, readFile, rm, utimes, writeFile } from 'node:fs/promises';
import { createServer, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import { withFolderLock } from './folder-lock.js';
import { memcachedKeys, startMemcached } from './memcached.js';
import { ask, freePort, isFree } from './ports.js';
import { isRunning, signal } from './processes.js';
import { provide } from './provide.js';
import { startRedis } from './redis.js';
import { type Server, startServer } from './server.js';

const run = promisify(execFile);
/** The first run downloads; a slow mirror is not a failure. */
const DOWNLOAD_MS = 300_000;
const PING = 'PING\r\n';
const PONG = '+PONG\r\n';

let scratch: string;

beforeEach(async () => {
  scratch = await mkdtemp(join(tmpdir(), 'holdfast-servers-test-'));
});

afterEach(() => rm(scratch, { recursive: true, force: true }));

/** A program of a few lines instead of a real server. */
const node = (script: string) => ({
  program: { command: process.execPath, args: ['-e', script], env: {}, root: '/' },
  args: () => [],
});

describe('a server', { timeout: DOWNLOAD_MS }, () => {
  test('answers on loopback once it is started, and only there', async () => {
    await using redis = await startRedis();
    expect(await ask(redis.port, PING)).toBe(PONG);
    const sockets = await readFile('/proc/net/tcp', 'utf8');
    const port = redis.port.toString(16).toUpperCase().padStart(4, '0');
    const listening = sockets.split('\n').filter((line) => line.includes(`:${port} 00000000:0000 0A`));
    expect(listening.map((line) => line.trim().split(/\s+/)[1])).toEqual([`0100007F:${port}`]);
  });

  test('does not answer while paused and answers when resumed', async () => {
    await using redis = await startRedis();
    await redis.pause();
    await expect(ask(redis.port, PING, 200)).rejects.toThrow('no answer');
    expect(redis.running).toBe(true);
    redis.resume();
    expect(await ask(redis.port, PING)).toBe(PONG);
  });

  test('is another process on the same port with the same data after a restart', async () => {
    await using redis = await startRedis({ args: ['--appendonly', 'yes'] });
    const { pid, port } = redis;
    expect(await ask(port, 'SET a 1\r\n')).toBe('+OK\r\n');
    await redis.restart();
    expect(redis.port).toBe(port);
    expect(redis.pid).not.toBe(pid);
    expect(isRunning(pid)).toBe(false);
    expect(await ask(port, 'GET a\r\n')).toBe('$1\r\n1\r\n');
  });

  test('is dead when kill() returns, and can be started again', async () => {
    await using redis = await startRedis();
    const { pid } = redis;
    await redis.kill();
    expect(redis.running).toBe(false);
    expect(isRunning(pid)).toBe(false);
    await expect(ask(redis.port, PING)).rejects.toThrow('ECONNREFUSED');
    await redis.kill();
    await redis.restart();
    expect(await ask(redis.port, PING)).toBe(PONG);
  });

  test('leaves no process, no port and no folder behind when stopped, even if it was paused', async () => {
    const redis = await startRedis();
    await redis.pause();
    await redis.stop();
    expect(isRunning(redis.pid)).toBe(false);
    expect(await isFree(redis.port)).toBe(true);
    expect(existsSync(redis.folder)).toBe(false);
    await redis.stop();
  });

  test('takes the processes it forked along', async () => {
    const script = `const child = require('node:child_process').spawn('sleep', ['1000']);
      require('node:net').createServer((s) => s.end(String(child.pid))).listen(PORT, '127.0.0.1');`;
    await using server = await startServer({
      name: 'forking',
      program: { command: process.execPath, args: [], env: {}, root: '/' },
      args: ({ port }) => ['-e', script.replace('PORT', `${port}`)],
      ready: async ({ port }) => (await ask(port, '')) !== '',
    });
    const forked = Number(await ask(server.port, ''));
    expect(isRunning(forked)).toBe(true);
    await server.kill();
    expect(isRunning(forked)).toBe(false);
  });

  test('starts five at once, each on its own port', async () => {
    const servers = await Promise.all(Array.from({ length: 5 }, () => startRedis()));
    expect(new Set(servers.map(({ port }) => port)).size).toBe(5);
    expect(await Promise.all(servers.map(({ port }) => ask(port, PING)))).toEqual(Array(5).fill(PONG));
    await Promise.all(servers.map((server) => server.stop()));
  });

  test('takes another port when somebody else has taken it, also if that one answers like ours', async () => {
    await using other = await startRedis();
    const ports = [other.port];
    await using redis = await startRedis({ choosePort: async () => ports.pop() ?? freePort() });
    expect(redis.port).not.toBe(other.port);
    expect(await ask(redis.port, PING)).toBe(PONG);
  });

  test.runIf(process.platform === 'linux')('has a port that nobody else is given', async () => {
    const ports = await Promise.all(Array.from({ length: 500 }, () => freePort()));
    expect(new Set(ports).size).toBe(500);
    // The kernel hands out others, to outgoing connections and to those who listen on any port, if it leaves us enough.
    const first = Number.parseInt(await readFile('/proc/sys/net/ipv4/ip_local_port_range', 'utf8'), 10);
    if (first >= 15_000) expect(Math.max(...ports)).toBeLessThan(first);
    // Neither does another process that asks as we do.
    const taken = ports[0]!;
    const other = `const net = require('node:net').createServer().on('error', ({ code }) => console.log(code));
      net.listen('\\0holdfast-port-${taken}', () => net.close());`;
    expect((await run(process.execPath, ['-e', other])).stdout).toBe('EADDRINUSE\n');
  });

  test('gives up when no port can be had', async () => {
    const blocker = createServer((socket) => socket.destroy());
    const port = await freePort();
    await new Promise<void>((resolve) => blocker.listen(port, '127.0.0.1', resolve));
    let asked = 0;
    const choosePort = async (): Promise<number> => {
      asked += 1;
      return port;
    };
    const failed = await failureOf(startRedis({ choosePort }));
    blocker.close();
    expect(asked).toBe(5);
    expect(failed).toContain('Address already in use');
    await removeKept(failed);
  });

  test('shows the end of its log when it does not get ready, and keeps it', async () => {
    const never = { name: 'broken', ready: async () => false };
    const ended = startServer({ ...never, ...node('console.error("no such disk"); process.exit(3)') });
    const failed = await failureOf(ended);
    expect(failed).toMatch(/ended before it was ready.*\n.*no such disk/);
    await removeKept(failed);
    const silent = startServer({ ...never, ...node('setInterval(() => {}, 1000)'), readyWithinMs: 300 });
    const late = await failureOf(silent);
    expect(late).toContain('was not ready within 300 ms');
    await removeKept(late);
    const program = { command: '/no/such/program', args: [], env: {}, root: '/' };
    const missing = await failureOf(startServer({ ...never, program, args: () => [] }));
    expect(missing).toContain('/no/such/program');
    await removeKept(missing);
  });

  test.each(['process.exit(1)', 'throw new Error("crash")', 'process.kill(process.pid, "SIGKILL")'])(
    'ends with the process that started it: %s',
    async (end) => {
      const redis = fileURLToPath(new URL('redis.ts', import.meta.url));
      const script = `import { startRedis } from ${JSON.stringify(redis)};
        const server = await startRedis();
        process.stdout.write(server.pid + ' ' + server.folder + '\\n', () => { ${end} });`;
      await writeFile(join(scratch, 'user.mts'), script);
      const cwd = fileURLToPath(new URL('../..', import.meta.url));
      const user = spawn(process.execPath, ['--import', 'tsx', join(scratch, 'user.mts')], { cwd });
      let printed = '';
      user.stdout.on('data', (bytes: Buffer) => {
        printed += bytes.toString();
      });
      await new Promise((resolve) => user.once('close', resolve));
      const [pid, folder] = printed.trim().split(' ');
      expect(Number(pid)).toBeGreaterThan(0);
      await vi.waitFor(() => expect(isRunning(Number(pid))).toBe(false), 30_000);
      // Nobody is left to remove the folder of one whose owner was killed.
      if (end.includes('SIGKILL')) await rm(folder ?? '', { recursive: true });
      expect(existsSync(folder ?? '')).toBe(false);
    },
  );

  test('can be memcached too', async () => {
    await using memcached = await startMemcached();
    expect(await ask(memcached.port, 'mn\r\n')).toBe('MN\r\n');
    await memcached.restart();
    expect(await ask(memcached.port, 'mn\r\n')).toBe('MN\r\n');
  });
});

test('the keys of a memcached are all of them, in however many pieces, and when it was busy', async () => {
  const answers = [
    ['BUSY currently processing crawler request\r\n'],
    ['key=a exp=-1 la=1\r\nkey=', 'b exp=-1\r\n', 'END\r\n'],
  ];
  const say = async (socket: Socket): Promise<void> => {
    for (const piece of answers.shift() ?? []) {
      socket.write(piece);
      await sleep(20);
    }
  };
  const busy = createServer((socket) => void say(socket));
  const port = await freePort();
  await new Promise<void>((resolve) => busy.listen(port, '127.0.0.1', resolve));
  expect(await memcachedKeys(port)).toEqual(['a', 'b']);
  busy.close();
});

describe('provide', { timeout: DOWNLOAD_MS }, () => {
  test('unpacks a server from Debian packages that then runs, whether it is installed or not', async () => {
    await using redis = await startRedis({ unpack: true, trees: scratch });
    expect(await ask(redis.port, PING)).toBe(PONG);
    const { stdout } = await run('cat', [`/proc/${redis.pid}/maps`]);
    expect(stdout).toContain(join(scratch, 'redis-server+redis-tools', 'usr/bin/'));
    expect(await readdir(scratch)).toEqual(['redis-server+redis-tools']);
  });

  test('lets several want the same packages at once', async () => {
    const wanted = Array.from({ length: 3 }, () =>
      provide('memcached', ['memcached'], { unpack: true, trees: scratch }),
    );
    const programs = await Promise.all(wanted);
    expect(new Set(programs.map(({ command, args }) => [command, ...args].join(' '))).size).toBe(1);
    expect(await readdir(scratch)).toEqual(['memcached']);
  });

  test('uses what is on PATH', async () => {
    expect(await provide('sh', ['dash'])).toMatchObject({ args: [], env: {}, root: '/' });
  });

  test('says which command to run when there is no such package, or no apt', async () => {
    const packages = ['holdfast-no-such-server', 'holdfast-tools'];
    const install = 'sudo apt-get update && sudo apt-get install --no-install-recommends holdfast-no-such-server';
    await expect(provide('no-such-server', packages, { trees: scratch })).rejects.toThrow(install);
    vi.stubEnv('PATH', scratch);
    await expect(provide('no-such-server', packages, { trees: scratch })).rejects.toThrow(install);
    vi.unstubAllEnvs();
    expect(await readdir(scratch)).toEqual([]);
  });
});

describe('a folder lock', () => {
  test('lets one in at a time', async () => {
    let inside = 0;
    let most = 0;
    const work = async (): Promise<void> => {
      inside += 1;
      most = Math.max(most, inside);
      await sleep(20);
      inside -= 1;
    };
    await Promise.all(Array.from({ length: 4 }, () => withFolderLock(join(scratch, 'lock'), work)));
    expect(most).toBe(1);
  });

  test('is taken over from a process that died', async () => {
    const folder = join(scratch, 'lock');
    await mkdir(folder);
    const longAgo = new Date(Date.now() - 60_000);
    await utimes(folder, longAgo, longAgo);
    expect(await withFolderLock(folder, async () => 'in')).toBe('in');
    expect(existsSync(folder)).toBe(false);
  });
});

describe('a process', () => {
  test('counts as dead while it is a zombie', async () => {
    // The shell becomes a program that never collects the exit of its child.
    const parent = spawn('sh', ['-c', 'sleep 0 & echo $!; exec sleep 1000'], { stdio: ['ignore', 'pipe', 'ignore'] });
    const pid = Number(
      await new Promise<string>((resolve) => parent.stdout.once('data', (b: Buffer) => resolve(b.toString()))),
    );
    await vi.waitFor(() => expect(isRunning(pid)).toBe(false), 30_000);
    expect(existsSync(`/proc/${pid}`)).toBe(true);
    signal([parent.pid ?? 0], 'SIGKILL');
  });
});

async function failureOf(starting: Promise<Server>): Promise<string> {
  const failure: unknown = await starting.then(
    () => undefined,
    (error: unknown) => error,
  );
  if (!(failure instanceof Error)) throw new Error('it did not fail');
  return failure.message;
}

/** A server that did not get ready names the log it left; nobody needs this one. */
async function removeKept(message: string): Promise<void> {
  const folder = /The end of (\S+)\/log:/.exec(message)?.[1] ?? '';
  expect(existsSync(join(folder, 'log'))).toBe(true);
  await rm(folder, { recursive: true });
}
