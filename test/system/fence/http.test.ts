/** The fence of an HTTP service, under fetch handlers, Express and Fastify. */
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import express from 'express';
import fastify from 'fastify';
import { afterEach, describe, expect, test } from 'vitest';
import { isStale } from '../../../src/core/fence.js';
import { fence, fencedFetch, httpFence, tokenHeaders } from '../../../src/fence/index.js';
import { ConfigError, Holdfast, StaleTokenError } from '../../../src/index.js';
import { seededRandom } from '../../servers/seeded-random.js';

/** Beyond 2^53, where neighbours are the same double. */
const BASE = 2n ** 60n;

/** Reads and writes one value per path; a POST waits until it is let go. */
class Shelf {
  readonly values = new Map<string, string>();
  readonly held: (() => void)[] = [];
  /** Requests that have come to the fence. Each has shown its token in the same turn. */
  arrived = 0;

  /** What a request is about: its path. */
  readonly resource = (request: { readonly url: string }): string => {
    this.arrived += 1;
    return pathOf(request);
  };

  async serve(method: string, path: string, body: string): Promise<string> {
    if (method === 'POST') await new Promise<void>((resolve) => this.held.push(resolve));
    if (method !== 'GET') this.values.set(path, body);
    return this.values.get(path) ?? '';
  }
}

interface Service {
  readonly url: string;
  readonly shelf: Shelf;
  close(): Promise<unknown>;
}

const pathOf = (request: { readonly url: string }): string => new URL(request.url, 'http://x').pathname;

const SERVICES: Record<string, (timeout: number) => Promise<Service>> = {
  'fetch handler': async (timeout) => {
    const shelf = new Shelf();
    const fences = httpFence<Request>({ resource: shelf.resource, timeout });
    const handle = fences.handler(
      async (request) => new Response(await shelf.serve(request.method, pathOf(request), await request.text())),
    );
    const server = createServer((request, response) => void adapt(handle, request, response));
    return listening(server, shelf);
  },
  express: async (timeout) => {
    const shelf = new Shelf();
    const fences = httpFence<express.Request>({ resource: shelf.resource, timeout });
    const app = express();
    app.use(fences.middleware());
    app.use(express.text({ type: '*/*' }));
    app.use((request, response, next) => {
      const { method, path, body } = request as { method: string; path: string; body: string | undefined };
      shelf.serve(method, path, body ?? '').then((value) => response.send(value), next);
    });
    return listening(createServer(app), shelf);
  },
  fastify: async (timeout) => {
    const shelf = new Shelf();
    const fences = httpFence<{ readonly url: string }>({ resource: shelf.resource, timeout });
    const app = fastify();
    app.addContentTypeParser('*', { parseAs: 'string' }, (_request, body, done) => done(null, body));
    app.addHook('preHandler', fences.hook());
    app.all('/*', async ({ method, url, body }) => shelf.serve(method, url, (body as string | null) ?? ''));
    const url = await app.listen({ host: '127.0.0.1', port: 0 });
    const close = (): Promise<unknown> => {
      app.server.closeAllConnections();
      return app.close();
    };
    return { url, shelf, close };
  },
};

async function adapt(
  handle: (request: Request) => Promise<Response>,
  incoming: IncomingMessage,
  outgoing: ServerResponse,
): Promise<void> {
  const chunks: Buffer[] = [];
  for await (const chunk of incoming) chunks.push(chunk as Buffer);
  const method = incoming.method!;
  const body = method === 'GET' ? null : Buffer.concat(chunks);
  const request = new Request(`http://x${incoming.url}`, {
    method,
    headers: incoming.headers as Record<string, string>,
    body,
  });
  const response = await handle(request);
  outgoing.writeHead(response.status, Object.fromEntries(response.headers));
  outgoing.end(await response.text());
}

async function listening(server: Server, shelf: Shelf): Promise<Service> {
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const { port } = server.address() as AddressInfo;
  const close = (): Promise<unknown> => {
    // What a test that failed has left at work.
    server.closeAllConnections();
    return new Promise((resolve) => server.close(resolve));
  };
  return { url: `http://127.0.0.1:${port}`, shelf, close };
}

describe.each(Object.entries(SERVICES))('%s', (_name, start) => {
  let service: Service;
  const locks = new Holdfast('memory:');
  afterEach(() => service.close());

  const put = (token: bigint, body: string): Promise<Response> =>
    fencedFetch(token)(`${service.url}/report`, { method: 'PUT', body });

  test('an overtaken holder is refused, whether it reads or writes', async () => {
    service = await start(10_000);
    const lock = locks.mutex('report');
    const old = await lock.acquire({ maxHold: 1 });
    expect(await (await fencedFetch(old)(`${service.url}/report`)).text()).toBe('');
    const young = await lock.acquire();
    expect(await (await fencedFetch(young)(`${service.url}/report`)).text()).toBe('');
    for (const method of ['GET', 'PUT'])
      await expect(fencedFetch(old)(`${service.url}/report`, { method })).rejects.toMatchObject({
        code: 'HOLDFAST_STALE_TOKEN',
        token: old.token,
        newest: young.token,
      });
    expect((await fencedFetch(young)(`${service.url}/report`, { method: 'PUT', body: 'young' })).status).toBe(200);
    expect(service.shelf.values.get('/report')).toBe('young');
    expect((await fencedFetch(old)(`${service.url}/another`)).status).toBe(200);
    await young.release();
  });

  test('judges readers and writers by the rule, in integers of 64 bits', async () => {
    service = await start(10_000);
    const random = seededRandom(13);
    let [maxRead, maxWrite] = [0n, 0n];
    for (let step = 0; step < 80; step += 1) {
      const token = BASE + BigInt(Math.floor(step / 8 + random() * 6));
      const mode = random() < 0.5 ? 'read' : 'write';
      const stale = isStale({ token, mode }, maxRead, maxWrite);
      const answer = fencedFetch(token, { shared: mode === 'read' })(`${service.url}/model`).then(
        ({ status }) => status,
        (error: StaleTokenError) => error.newest,
      );
      expect(await answer).toBe(stale ? (maxRead > maxWrite ? maxRead : maxWrite) : 200);
      if (stale) continue;
      if (mode === 'write') maxWrite = token;
      else if (token > maxRead) maxRead = token;
    }
  });

  test('a writer that a reader has overtaken is refused, and so is one with the reader’s own token', async () => {
    service = await start(10_000);
    const status = async (shared: boolean, token: bigint): Promise<number> =>
      (await fetch(`${service.url}/report`, { headers: tokenHeaders(token, { shared }) })).status;
    expect(await status(true, 5n)).toBe(200);
    expect([await status(false, 4n), await status(false, 5n)]).toEqual([412, 412]);
    expect([await status(true, 4n), await status(false, 6n)]).toEqual([200, 200]);
  });

  test('what is no token is refused, with the reason', async () => {
    service = await start(10_000);
    const status = async (header?: string): Promise<number> =>
      (await fetch(service.url, { headers: header === undefined ? {} : { 'holdfast-token': header } })).status;
    expect(await status()).toBe(428);
    for (const wrong of ['', 'x', '-1', '0', '1.5', '1e3', '9223372036854775808', '1; mine', '1, 2'])
      expect(await status(wrong)).toBe(400);
    expect(await status('9223372036854775806; shared')).toBe(200);
    expect(await status('9223372036854775807')).toBe(200);
    expect(await status('9223372036854775806')).toBe(412);
  });

  test('a newer holder waits until an older request that is at work has ended', async () => {
    service = await start(10_000);
    const old = fencedFetch(1n)(`${service.url}/report`, { method: 'POST', body: 'old' });
    await until(() => service.shelf.held.length === 1);
    const young = put(2n, 'young');
    await until(() => service.shelf.arrived === 2);
    // The fence is closed to older ones already, while the younger still waits.
    expect((await fetch(`${service.url}/report`, { headers: tokenHeaders(1n) })).status).toBe(412);
    expect(service.shelf.values.get('/report')).toBeUndefined();
    service.shelf.held.shift()!();
    expect([(await old).status, (await young).status]).toEqual([200, 200]);
    expect(service.shelf.values.get('/report')).toBe('young');
  });

  test('a writer waits for the readers that are at work, who run beside each other', async () => {
    service = await start(10_000);
    const read = (token: bigint): Promise<Response> =>
      fencedFetch(token, { shared: true })(`${service.url}/report`, { method: 'POST', body: `reader ${token}` });
    const readers = [read(1n), read(2n)];
    await until(() => service.shelf.held.length === 2);
    const writer = put(3n, 'writer');
    await until(() => service.shelf.arrived === 3);
    // Time enough to write, if it did not wait.
    expect((await fetch(`${service.url}/another`, { headers: tokenHeaders(1n) })).status).toBe(200);
    expect(service.shelf.values.get('/report')).toBeUndefined();
    for (const go of service.shelf.held.splice(0)) go();
    const ended = await Promise.all([...readers, writer]);
    expect(ended.map(({ status }) => status)).toEqual([200, 200, 200]);
    expect(service.shelf.values.get('/report')).toBe('writer');
  });

  test('who is overtaken while it waits is refused, and never gets to the resource', async () => {
    service = await start(10_000);
    const old = fencedFetch(1n)(`${service.url}/report`, { method: 'POST', body: 'old' });
    await until(() => service.shelf.held.length === 1);
    const young = put(2n, 'young').catch((error: unknown) => error);
    await until(() => service.shelf.arrived === 2);
    const youngest = fencedFetch(3n)(`${service.url}/report`, { method: 'POST', body: 'youngest' });
    // Told at once: the oldest is still at work.
    expect(await young).toMatchObject({ code: 'HOLDFAST_STALE_TOKEN', newest: 3n });
    service.shelf.held.shift()!();
    await until(() => service.shelf.held.length === 1);
    expect(service.shelf.values.get('/report')).toBe('old');
    service.shelf.held.shift()!();
    expect([(await old).status, (await youngest).status]).toEqual([200, 200]);
    expect(service.shelf.values.get('/report')).toBe('youngest');
  });

  test('who waits too long is told to come again, and who goes meanwhile lets nobody in early', async () => {
    service = await start(50);
    const gone = new AbortController();
    const old = fencedFetch(1n)(`${service.url}/report`, { method: 'POST', body: 'old', signal: gone.signal });
    await until(() => service.shelf.held.length === 1);
    gone.abort();
    await expect(old).rejects.toThrow();
    const busy = await put(2n, 'young');
    expect([busy.status, busy.headers.get('retry-after')]).toEqual([503, '1']);
    // Its handler has not heard of it, and writes. Only then may the younger one.
    service.shelf.held.shift()!();
    await until(async () => (await put(2n, 'young')).status === 200);
    expect(service.shelf.values.get('/report')).toBe('young');
  });
});

test('a store keeps tokens beyond the process, and its refusals are told', async () => {
  const shown: string[] = [];
  const store = {
    open: async (resource: string, token: bigint, { shared }: { shared: boolean }) => {
      shown.push(`${resource} ${token} ${shared}`);
      if (token < 5n) throw new StaleTokenError(resource, token, 5n);
    },
  };
  // Nobody is at work when the next one comes: who waited for one that was refused would be told to come again.
  const fences = httpFence<Request>({ resource: () => 'r', store, timeout: 50 });
  const handle = fences.handler(async (request) => new Response(JSON.stringify(String(fences.of(request)?.token))));
  const ask = (token: bigint): Promise<Response> => handle(new Request('http://x', { headers: tokenHeaders(token) }));
  expect((await ask(4n)).status).toBe(412);
  expect(await (await ask(5n)).json()).toBe('5');
  expect(shown).toEqual(['r 4 false', 'r 5 false']);
});

test('a handler that throws is no longer at work', async () => {
  const fences = httpFence<Request>({ resource: () => 'r', timeout: 50 });
  const handle = fences.handler(async (request) => {
    if (request.method === 'PUT') throw new Error('broken');
    return new Response('ok');
  });
  await expect(handle(new Request('http://x', { method: 'PUT', headers: tokenHeaders(1n) }))).rejects.toThrow('broken');
  expect((await handle(new Request('http://x', { headers: tokenHeaders(2n) }))).status).toBe(200);
});

test('more resources than fit are refused, and a request that needs no token needs none', async () => {
  const fences = httpFence<Request>({
    resource: ({ url }) => (url.endsWith('/free') ? undefined : url),
    mostResources: 1,
  });
  const handle = fences.handler(async () => new Response('ok'));
  const ask = async (path: string): Promise<number> =>
    (await handle(new Request(`http://x${path}`, { headers: tokenHeaders(1n) }))).status;
  expect([await ask('/1'), await ask('/1'), await ask('/2')]).toEqual([200, 200, 503]);
  expect((await handle(new Request('http://x/free'))).status).toBe(200);
  expect(() => httpFence({} as never)).toThrow(ConfigError);
  expect(() => fence('x' as never)).toThrow(ConfigError);
});

/** Until it is so; the runner ends what never is. */
async function until(condition: () => boolean | Promise<boolean>): Promise<void> {
  while (!(await condition())) await new Promise((resolve) => setTimeout(resolve, 5));
}
