/**
 * Ports on loopback, below those that the kernel gives to outgoing connections and to who listens on any port. So while a
 * server starts, or is down, nobody takes its port by chance, and a client that reconnects to it does not meet itself.
 * Other processes that choose as we do leave alone what is reserved: a name in the kernel, which goes with its process.
 *
 * Programs that know nothing of this may still be quicker than the server's own bind. Then our server ends, and the other
 * one may be of the same kind and answer in its place: `isServedBy` tells whose the listening socket is.
 */
import { readFileSync } from 'node:fs';
import { readdir, readFile, readlink } from 'node:fs/promises';
import { connect, createServer } from 'node:net';

export const LOOPBACK = '127.0.0.1';

/** A port of loopback, or of another host. */
export type Where = number | { readonly host: string; readonly port: number };

export function addressOf(where: Where): { readonly host: string; readonly port: number } {
  return typeof where === 'number' ? { host: LOOPBACK, port: where } : { host: where.host, port: where.port };
}

const LOWEST_PORT = 10_000;
/** With fewer than this we would meet others more often than the kernel does. */
const ENOUGH_PORTS = 5_000;

/** Nobody else who asks here gets the same one while this process lives. */
export async function freePort(): Promise<number> {
  for (;;) {
    const port = await somePort();
    if (await reserve(port)) return port;
  }
}

async function somePort(): Promise<number> {
  const count = firstOfKernel() - LOWEST_PORT;
  if (count < ENOUGH_PORTS) return listenOnce(0);
  for (;;) {
    const port = LOWEST_PORT + Math.floor(Math.random() * count);
    if (await isFree(port)) return port;
  }
}

/** Of the range that the kernel chooses from; 0 where it is not known. */
function firstOfKernel(): number {
  try {
    return Number.parseInt(readFileSync('/proc/sys/net/ipv4/ip_local_port_range', 'utf8'), 10);
  } catch {
    return 0;
  }
}

/** False: another process has it, or we do. Only Linux has such names. */
async function reserve(port: number): Promise<boolean> {
  if (process.platform !== 'linux') return true;
  return new Promise((resolve) => {
    const name = createServer();
    name.once('error', () => resolve(false));
    // The zero makes it a name of Linux's own, without a file.
    name.listen(`\0holdfast-port-${port}`, () => resolve(true));
    name.unref();
  });
}

export async function isFree(port: number): Promise<boolean> {
  try {
    await listenOnce(port);
    return true;
  } catch {
    return false;
  }
}

/** Whether one of these processes listens on the port. True where the system (no /proc) can't tell. */
export async function isServedBy(pids: readonly number[], port: number): Promise<boolean> {
  if (process.platform !== 'linux') return true;
  const listeners = await listenersOn(pids[0], port);
  const sockets = await Promise.all(pids.map(socketsOf));
  return sockets.flat().some((socket) => listeners.has(socket));
}

/** Sends one request and answers with the first bytes that come back; rejects when there are none in time. */
export function ask(where: Where, request: string | Uint8Array, timeoutMs = 10_000): Promise<string> {
  const { host, port } = addressOf(where);
  return new Promise((resolve, reject) => {
    const socket = connect(port, host, () => socket.write(request));
    const end = (settle: () => void): void => {
      socket.destroy();
      settle();
    };
    socket.setTimeout(timeoutMs, () => end(() => reject(new Error(`no answer from port ${port} in ${timeoutMs} ms`))));
    socket.once('data', (bytes) => end(() => resolve(bytes.toString())));
    socket.once('error', (error) => end(() => reject(error)));
    socket.once('close', () => reject(new Error(`port ${port} closed the connection without an answer`)));
  });
}

function listenOnce(port: number): Promise<number> {
  return new Promise((resolve, reject) => {
    const server = createServer();
    server.once('error', reject);
    server.listen({ port, host: LOOPBACK, exclusive: true }, () => {
      const address = server.address();
      const chosen = typeof address === 'object' && address !== null ? address.port : port;
      server.close(() => resolve(chosen));
    });
  });
}

/** In the network of a process, as /proc/<pid>/fd spells them: socket:[inode]. */
async function listenersOn(pid: number | undefined, port: number): Promise<Set<string>> {
  // Servers in Java listen on IPv6 sockets that also take IPv4. A system without IPv6 has no such table.
  const tables = await Promise.all(
    ['tcp', 'tcp6'].map((table) => readFile(`/proc/${pid ?? 'self'}/net/${table}`, 'utf8').catch(() => '')),
  );
  const wanted = port.toString(16).toUpperCase().padStart(4, '0');
  const LISTEN = '0A';
  const rows = tables.flatMap((table) => table.split('\n').map((line) => line.trim().split(/\s+/)));
  const ours = rows.filter(([, local, , state]) => state === LISTEN && local?.endsWith(`:${wanted}`));
  return new Set(ours.map((row) => `socket:[${row[9]}]`));
}

async function socketsOf(pid: number): Promise<string[]> {
  const folder = `/proc/${pid}/fd`;
  const descriptors = await readdir(folder).catch(() => []);
  // A descriptor may be closed between the listing and the look at it.
  return Promise.all(descriptors.map((descriptor) => readlink(`${folder}/${descriptor}`).catch(() => '')));
}
