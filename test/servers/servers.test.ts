/** Promises of the servers that other tests rely on. */
import { execFile, spawn, spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { existsSync, readFileSync } from 'node:fs';
import { mkdir, mkdtemp, readdir, readFile, rm, stat, utimes, writeFile } from 'node:fs/promises';
import { createServer, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import { unpackDebian } from './debian.js';
import { withFolderLock } from './folder-lock.js';
import { memcachedKeys, startMemcached } from './memcached.js';
import { ask, freePort, isFree } from './ports.js';
import { freeze, isRunning, kill, signal } from './processes.js';
import { provide } from './provide.js';
import { startRedis } from './redis.js';
import { type Server, startServer } from './server.js';

const run = promisify(execFile);
const hasApt = ['apt-get', 'dpkg-deb'].every((tool) => spawnSync(tool, ['--version']).status === 0);
const PING = 'PING\r\n';
const PONG = '+PONG\r\n';

let scratch: string;

beforeEach(async () => {
  scratch = await mkdtemp(join(tmpdir(), 'holdfast-servers-test-'));
});

afterEach(async () => {
  vi.unstubAllEnvs();
  await rm(scratch, { recursive: true, force: true });
});

/** A program of a few lines instead of a real server. */
const node = (script: string) => ({
  program: { command: process.execPath, args: ['-e', script], env: {}, root: '/' },
  args: () => [],
});

describe('a server', () => {
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

describe('a program', () => {
  const greeter = ['holdfast-greeter'];

  test('is taken from PATH', () => {
    expect(provide('sh', ['dash'])).toMatchObject({ args: [], env: {}, root: '/' });
  });

  test('that is nowhere is an error that says what to run', () => {
    expect(() => provide('holdfast-greeter', greeter, scratch)).toThrow('Run: npm run servers');
  });

  test.runIf(hasApt)('is unpacked from a Debian package once, whoever wants it, and then runs', async () => {
    await useRepository(scratch);
    const trees = join(scratch, 'trees');
    await Promise.all(Array.from({ length: 3 }, () => unpackDebian(greeter, join(trees, 'holdfast-greeter'))));
    const { command, args, root } = provide('holdfast-greeter', greeter, trees);
    expect(root).toBe(join(trees, 'holdfast-greeter'));
    expect((await run(command, [...args])).stdout).toBe('hello\n');
    expect(await readdir(trees)).toEqual(['holdfast-greeter']);
  });

  test.runIf(hasApt)('that no package holds leaves nothing behind', async () => {
    await useRepository(scratch);
    const trees = join(scratch, 'trees');
    await expect(unpackDebian(['holdfast-no-such-server'], join(trees, 'none'))).rejects.toThrow('Unable to locate');
    expect(await readdir(trees)).toEqual([]);
  });
});

/** apt knows nothing but a repository on this disk with one package, so that no test waits for a mirror. */
async function useRepository(folder: string): Promise<void> {
  const source = join(folder, 'source');
  const repository = join(folder, 'repository');
  for (const each of ['source/DEBIAN', 'source/usr/bin', 'repository'])
    await mkdir(join(folder, each), { recursive: true });
  const about = 'Package: holdfast-greeter\nVersion: 1.0\nArchitecture: all\nMaintainer: nobody <nobody@localhost>\n';
  await writeFile(join(source, 'DEBIAN/control'), `${about}Description: says hello\n`);
  await writeFile(join(source, 'usr/bin/holdfast-greeter'), '#!/bin/sh\necho hello\n', { mode: 0o755 });
  const archive = join(repository, 'greeter.deb');
  await run('dpkg-deb', ['--build', '--root-owner-group', source, archive]);
  const bytes = await readFile(archive);
  const hash = createHash('sha256').update(bytes).digest('hex');
  const entry = `${about}Filename: ./greeter.deb\nSize: ${bytes.length}\nSHA256: ${hash}\nDescription: says hello\n`;
  await writeFile(join(repository, 'Packages'), entry);
  await writeFile(join(folder, 'sources.list'), `deb [trusted=yes] file:${repository} ./\n`);
  const settings = [`Dir::Etc::SourceList "${join(folder, 'sources.list')}";`, 'Dir::Etc::SourceParts "/dev/null";'];
  await writeFile(join(folder, 'apt.conf'), settings.join('\n'));
  vi.stubEnv('APT_CONFIG', join(folder, 'apt.conf'));
}

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
  test.runIf(process.platform === 'linux')('that forks all the time stands still with all that it forked', async () => {
    const file = join(scratch, 'signs-of-life');
    // Each fork lives for a moment and leaves a sign: one that is missed leaves it after the list was made.
    const forking = `while :; do (sleep 0.01; printf x >> ${file}) & (( ++n % 20 )) || wait; done`;
    const script = `(${forking}) & (${forking}) & ${forking}`;
    const parent = spawn('bash', ['-c', script], { stdio: 'ignore' });
    const size = async (): Promise<number> => (await stat(file).catch(() => ({ size: 0 }))).size;
    try {
      for (let round = 0; round < 50; round += 1) {
        const before = await size();
        await vi.waitFor(async () => expect(await size()).toBeGreaterThan(before), 30_000);
        const family = await freeze(parent.pid!);
        const frozenAt = await size();
        await sleep(10);
        expect(await size()).toBe(frozenAt);
        signal(family, 'SIGCONT');
      }
    } finally {
      await kill(parent.pid!);
    }
    const last = await size();
    await sleep(50);
    expect(await size()).toBe(last);
  });

  test('counts as dead while it is a zombie', async () => {
    const script = 'sleep 1000 & echo $!; exec sleep 1000';
    const parent = spawn('sh', ['-c', script], { stdio: ['ignore', 'pipe', 'ignore'] });
    const pid = Number(
      await new Promise<string>((resolve) => parent.stdout.once('data', (b: Buffer) => resolve(b.toString()))),
    );
    // The shell collects the exit of its child; what it becomes never does.
    await vi.waitFor(() => expect(readFileSync(`/proc/${parent.pid}/comm`, 'utf8')).toBe('sleep\n'), 30_000);
    expect(isRunning(pid)).toBe(true);
    signal([pid], 'SIGKILL');
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
