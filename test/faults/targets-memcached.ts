/** One memcached, with a proxy before it for each worker. It keeps nothing: a restart forgets, with or without our help. */
import { clockShim } from '../servers/clock-shim.js';
import { FaultProxy } from '../servers/fault-proxy.js';
import { memcachedKeys, startMemcached } from '../servers/memcached.js';
import { ask } from '../servers/ports.js';
import type { Target, TargetKind } from './targets.js';
import { GARBAGE, strangeName } from './tenant.js';

/** What it forgets is free at once; only the token keeps the two holders apart. */
const FORGETS = ['belief'] as const;

export const MEMCACHED: TargetKind = {
  processes: true,
  start,
  sparesUnder: { restart: FORGETS, 'restart-empty': FORGETS, delete: FORGETS },
  short: { seconds: 4, nemeses: ['stall', 'kill', 'hang', 'lost-replies', 'restart', 'hostile-tenant'] },
};

async function start(): Promise<Target> {
  const clock = await clockShim();
  const server = await startMemcached(clock && { env: clock.env });
  const proxies = new Map<string, FaultProxy>();
  return {
    urlFor: async (worker) => {
      const proxy = proxies.get(worker) ?? (await FaultProxy.start(server.port));
      proxies.set(worker, proxy);
      return `memcached://127.0.0.1:${proxy.port}`;
    },
    deleteSome: async (namespace) => {
      const keys = (await memcachedKeys(server)).filter((key) => key.startsWith(`${namespace}:`));
      const key = keys[Math.floor(Math.random() * keys.length)];
      if (key !== undefined) await ask(server, `md ${key}\r\n`);
    },
    tenant: async ({ namespace, random }) => {
      const value = random.pick(GARBAGE);
      const key = `${namespace}:${strangeName(random).replaceAll(' ', '-')}`;
      await ask(server, `set ${key} ${random.int(2 ** 32)} 0 ${value.length}\r\n${value}\r\n`);
    },
    server,
    proxies,
    ...(clock && { clock }),
    forget: async () => {},
    leftovers: async (namespace) =>
      (await memcachedKeys(server)).filter((key) => key.startsWith(`${namespace}:`) && key !== `${namespace}:%token`),
    versions: { memcached: (await ask(server, 'version\r\n')).replace('VERSION', '').trim() },
    [Symbol.asyncDispose]: async () => {
      for (const proxy of proxies.values()) await proxy[Symbol.asyncDispose]();
      await server.stop();
      clock?.[Symbol.dispose]();
    },
  };
}
