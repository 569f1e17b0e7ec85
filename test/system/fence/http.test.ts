/** The fence of an HTTP service, under fetch handlers, Express and Fastify. */
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import express from 'express';
import fastify from 'fastify';
import { afterEach, describe, expect, test } from 'vitest';
import { fence, fencedFetch, httpFence, tokenHeaders } from '../../../src/fence/index.js';
import { ConfigError, Holdfast, StaleTokenError } from '../../../src/index.js';

/** Reads and writes one value per path; a POST waits until it is let go. */
class Shelf {
  readonly values = new Map<string, string>();
  readonly held: (() => void)[] = [];

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
    const fences = httpFence<Request>({ resource: pathOf, timeout });
    const handle = fences.handler(
      async (request) => new Response(await shelf.serve(request.method, pathOf(request), await request.text())),
    );
    const server = createServer((request, response) => void adapt(handle, request, response));
    return listening(server, shelf);
  },
  express: async (timeout) => {
    const shelf = new Shelf();
    const fences = httpFence<express.Request>({ resource: pathOf, timeout });
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
    const fences = httpFence<{ readonly url: string }>({ resource: pathOf, timeout });
    const app = fastify();
    app.addContentTypeParser('*', { parseAs: 'string' }, (_request, body, done) => done(null, body));
    app.addHook('preHandler', fences.hook());
    app.all('/*', async ({ method, url, body }) => shelf.serve(method, url, (body as string | null) ?? ''));
    const url = await app.listen({ host: '127.0.0.1', port: 0 });
    return { url, shelf, close: () => app.close() };
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
  return { url: `http://127.0.0.1:${port}`, shelf, close: () => new Promise((resolve) => server.close(resolve)) };
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
    // The fence is closed to older ones already, while the younger still waits.
    await until(async () => (await fetch(`${service.url}/report`, { headers: tokenHeaders(1n) })).status === 412);
    service.shelf.held.shift()!();
    expect([(await old).status, (await young).status]).toEqual([200, 200]);
    expect(service.shelf.values.get('/report')).toBe('young');
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
  const fences = httpFence<Request>({ resource: () => 'r', store });
  const handle = fences.handler(async (request) => new Response(JSON.stringify(String(fences.of(request)?.token))));
  const ask = (token: bigint): Promise<Response> => handle(new Request('http://x', { headers: tokenHeaders(token) }));
  expect((await ask(4n)).status).toBe(412);
  expect(await (await ask(5n)).json()).toBe('5');
  expect(shown).toEqual(['r 4 false', 'r 5 false']);
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
