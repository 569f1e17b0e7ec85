/** What a stranger, a lost connection or a broken stream may do to the fence of an HTTP service: nothing that lasts. */
import { createReadStream, writeFileSync } from 'node:fs';
import { mkdtemp, rm } from 'node:fs/promises';
import { createServer, request, type Server } from 'node:http';
import { type AddressInfo, connect } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { pipeline } from 'node:stream';
import express from 'express';
import fastify from 'fastify';
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import { fencedFetch, httpFence, type HttpFenceOptions, tokenHeaders } from '../../../src/fence/index.js';
import { EngineError, HoldfastError, StaleTokenError } from '../../../src/index.js';

const closing: (() => Promise<unknown>)[] = [];
let folder: string;
let large: string;

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'holdfast-http-'));
  large = join(folder, 'large');
  // More than fits into the buffers of a connection.
  writeFileSync(large, Buffer.alloc(32 * 1024 * 1024));
});
afterEach(async () => {
  for (const close of closing.splice(0)) await close();
});
afterAll(() => rm(folder, { recursive: true }));

async function listening(server: Server): Promise<number> {
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  closing.push(() => {
    server.closeAllConnections();
    return new Promise((resolve) => server.close(resolve));
  });
  return (server.address() as AddressInfo).port;
}

/** A service on Express, with everything but GET /free and PUT /free under the handler. */
async function service(handler: express.Handler, options: Partial<HttpFenceOptions<express.Request>> = {}) {
  const fences = httpFence<express.Request>({ resource: ({ path }) => path, timeout: '20s', ...options });
  const app = express();
  app.use(fences.middleware());
  app.use((req, res, next) => (req.get('x-free') ? void res.send('free') : next()));
  app.use(handler);
  const server = createServer(app);
  const port = await listening(server);
  return { fences, server, port, url: `http://127.0.0.1:${port}` };
}

/** Something that a test lets happen. */
class Latch {
  open!: () => void;
  break!: (error: Error) => void;
  readonly opened = new Promise<void>((resolve, reject) => {
    this.open = resolve;
    this.break = reject;
  });
}

/** Fails, at once or after its first chunk. */
async function* broken(first?: string): AsyncGenerator<string> {
  if (first !== undefined) yield first;
  throw new Error('broken');
}

/** Whether the next holder gets in: to a handler that answers at once. */
async function next(url: string, token: bigint): Promise<number> {
  return (await fetch(url, { headers: { ...tokenHeaders(token), 'x-free': '1' } })).status;
}

/** Sends a request, and goes away after the first byte of its answer, or when it is told to. */
function abortable(url: string, { method = 'GET', length = 0 }: { method?: string; length?: number } = {}) {
  const headers = { ...tokenHeaders(1n), ...(length > 0 && { 'content-length': String(length) }) };
  const sent = request(url, { method, headers });
  sent.on('error', () => {});
  const answered = new Promise<void>((resolve) =>
    sent.on('response', (response) => response.on('error', () => {}).once('data', () => resolve())),
  );
  if (length > 0) sent.write('x');
  else sent.end();
  return { answered, abort: () => sent.destroy() };
}

describe('the next holder is let in', () => {
  const reading: readonly (readonly [string, express.Handler])[] = [
    ['res.sendFile', (_req, res) => res.sendFile(large)],
    ['stream.pipeline', (_req, res) => void pipeline(createReadStream(large), res, () => {})],
    ['stream.pipe', (_req, res) => void createReadStream(large).pipe(res)],
  ];

  test.each(reading)('when the client of %s has gone', async (_name, handler) => {
    const { url } = await service(handler);
    const { answered, abort } = abortable(url);
    await answered;
    abort();
    expect(await next(url, 2n)).toBe(200);
  });

  test('when the stream of an answer fails, before or after its first byte', async () => {
    const { url } = await service(
      (req, res) => void pipeline(broken(req.path === '/after' ? 'first' : undefined), res, () => {}),
    );
    for (const path of ['/before', '/after']) {
      await fetch(url + path, { headers: tokenHeaders(1n) })
        .then((answer) => answer.text())
        .catch(() => {});
      expect(await next(url + path, 2n)).toBe(200);
    }
  });

  test('when an upload is aborted', async () => {
    let arrived = false;
    const { url } = await service((req, res) => {
      arrived = true;
      req.on('data', () => {}).on('end', () => res.send('whole'));
    });
    const { abort } = abortable(url, { method: 'PUT', length: 100 });
    await until(() => arrived);
    abort();
    expect(await next(url, 2n)).toBe(200);
  });

  test('when an upload is kept open, within its timeout', async () => {
    let arrived = false;
    const { url } = await service(
      (req, res) => {
        arrived = true;
        req.on('data', () => {}).on('end', () => res.send('whole'));
      },
      { timeout: '2s' },
    );
    abortable(url, { method: 'PUT', length: 100 });
    await until(() => arrived);
    expect(await next(url, 2n)).toBe(200);
  });

  test('when a connection ends on which several requests stand in line', async () => {
    let file: express.Response | undefined;
    const { port, url } = await service((req, res) => {
      // The first one never answers, so that of the second never gets onto the wire.
      if (req.path === '/slow') return;
      file = res;
      createReadStream(large).pipe(res);
    });
    const socket = connect(port, '127.0.0.1').on('error', () => {});
    for (const path of ['/slow', '/file']) socket.write(`GET ${path} HTTP/1.1\r\nhost: x\r\nholdfast-token: 1\r\n\r\n`);
    await until(() => file?.headersSent === true);
    socket.destroy();
    expect(await next(`${url}/file`, 2n)).toBe(200);
  });

  test('when a handler does not answer at all, after a time', async () => {
    let arrived = false;
    const { url } = await service(() => void (arrived = true), { unanswered: '50ms' });
    const { abort } = abortable(url);
    await until(() => arrived);
    abort();
    expect(await next(url, 2n)).toBe(200);
  });

  test('when a client goes while it waits, and its handler does not run', async () => {
    let reached = 0;
    const latch = new Latch();
    const { url, port, server } = await service((_req, res) => {
      reached += 1;
      void latch.opened.then(() => res.send('done'));
    });
    let closed = 0;
    server.on('connection', (accepted) => accepted.on('close', () => (closed += 1)));
    const first = fetch(url, { headers: tokenHeaders(1n) });
    await until(() => reached === 1);
    const socket = connect(port, '127.0.0.1').on('error', () => {});
    socket.write('GET / HTTP/1.1\r\nhost: x\r\nholdfast-token: 2\r\n\r\n');
    // Its token is shown when older ones are refused.
    await until(async () => (await next(url, 1n)) === 412);
    socket.destroy();
    await until(() => closed === 1);
    latch.open();
    await first;
    expect([await next(url, 3n), reached]).toEqual([200, 1]);
  });
});

describe('a request that was answered by another while it waited', () => {
  const TIMED_OUT = 503;

  test('lets the next one in, and its handler does not run: Express', async () => {
    const work = new Latch();
    const reached: string[] = [];
    const fences = httpFence<express.Request>({ resource: ({ path }) => path, timeout: '20s' });
    const app = express();
    const impatient: express.Response[] = [];
    app.use((_req, res, next) => (impatient.push(res), next()));
    app.use(fences.middleware());
    app.use((req, res) => {
      reached.push(req.get('holdfast-token')!);
      if (reached.length > 1) return void res.send('done');
      return void work.opened.then(() => res.send('done'));
    });
    const url = `http://127.0.0.1:${await listening(createServer(app))}/`;
    const ask = (token: bigint): Promise<Response> => fetch(url, { headers: tokenHeaders(token) });
    const first = ask(5n);
    await until(() => reached.length === 1);
    const waiting = ask(6n);
    await until(() => impatient.length === 2);
    await until(async () => (await ask(5n)).status === 412);
    // Nothing of it has been sent: whoever ends it may be quicker than its connection.
    impatient[1]!.cork();
    impatient[1]!.status(TIMED_OUT).end('timed out');
    expect([impatient[1]!.writableEnded, impatient[1]!.destroyed]).toEqual([true, false]);
    work.open();
    await first;
    expect((await ask(7n)).status).toBe(200);
    expect(reached).toEqual(['5', '7']);
    impatient[1]!.uncork();
    expect((await waiting).status).toBe(TIMED_OUT);
  });
});

function ask(token: bigint): Request {
  return new Request('http://x', { method: 'PUT', headers: tokenHeaders(token) });
}

test('a Request of another library keeps its headers', async () => {
  const sent: Headers[] = [];
  const fetch = (async (_input: unknown, init: { headers: Headers }) => {
    sent.push(init.headers);
    return new Response('ok');
  }) as unknown as typeof globalThis.fetch;
  const foreign = { url: 'http://x', headers: new Headers({ authorization: 'me' }) } as Request;
  await fencedFetch(5n, { fetch })(foreign);
  expect([sent[0]!.get('authorization'), sent[0]!.get('holdfast-token')]).toEqual(['me', '5']);
});

describe('the body of a fetch handler’s answer', () => {
  const PIECE = new Uint8Array(40 * 1024);

  /** Each pull is a write of the handler's. */
  function streaming(pieces: number, written: () => void | Promise<void>, after?: () => void): Response {
    let sent = 0;
    const body = new ReadableStream<Uint8Array>(
      {
        pull: async (controller) => {
          if (sent === pieces) return (after?.(), controller.close());
          await written();
          sent += 1;
          controller.enqueue(PIECE);
        },
        cancel: () => after?.(),
      },
      { highWaterMark: 0 },
    );
    return new Response(body, { status: 201, headers: { 'x-kept': 'yes' } });
  }

  test('is a part of the handler: newer holders come after its last write', async () => {
    const writes: string[] = [];
    const fences = httpFence<Request>({ resource: () => 'r', timeout: '60s' });
    const handle = fences.handler((req) => streaming(6, () => void writes.push(req.headers.get('holdfast-token')!)));
    const older = await handle(ask(5n));
    expect([older.status, older.headers.get('x-kept')]).toEqual([201, 'yes']);
    const newer = handle(ask(6n)).then((answer) => answer.arrayBuffer());
    await until(async () => (await handle(ask(4n))).status === 412);
    expect((await older.arrayBuffer()).byteLength).toBe(6 * PIECE.length);
    await newer;
    expect(writes.join('')).toBe('555555666666');
  });

  test('is the same whatever class of Response a framework makes it with', async () => {
    class Json extends Response {
      constructor(value: unknown) {
        super(JSON.stringify(value), { headers: { 'content-type': 'application/json', 'x-kept': 'yes' } });
      }
    }
    const fences = httpFence<Request>({ resource: () => 'r' });
    const answer = await fences.handler(() => new Json({ stock: 3 }))(ask(1n));
    expect([answer instanceof Response, answer.headers.get('x-kept')]).toEqual([true, 'yes']);
    expect(await answer.json()).toEqual({ stock: 3 });
  });

  test('that is ready is no reason to wait, though nobody reads it', async () => {
    const fences = httpFence<Request>({ resource: () => 'r', timeout: '60s' });
    const handle = fences.handler(() => new Response('x'.repeat(1024 * 1024)));
    for (const token of [1n, 2n, 3n]) expect((await handle(ask(token))).status).toBe(200);
  });

  test('that fails, or that is cancelled, lets the next one in', async () => {
    const fences = httpFence<Request>({ resource: () => 'r', timeout: '60s' });
    const handle = fences.handler((req) =>
      streaming(9, () => {
        if (req.headers.get('holdfast-token') === '1') throw new Error('broken');
      }),
    );
    await expect((await handle(ask(1n))).text()).rejects.toThrow('broken');
    await (await handle(ask(2n))).body!.cancel();
    expect((await handle(ask(3n))).status).toBe(201);
  });

  test('that nobody reads is cut off when a newer one waits', async () => {
    let ended = 0;
    const fences = httpFence<Request>({ resource: () => 'r', timeout: '4s' });
    const handle = fences.handler((req) =>
      req.headers.get('holdfast-token') === '1'
        ? streaming(
            1_000,
            () => {},
            () => (ended += 1),
          )
        : new Response('ok'),
    );
    await handle(ask(1n));
    expect((await handle(ask(2n))).status).toBe(200);
    expect(ended).toBe(1);
  });

  test('whose next piece takes long is waited for', async () => {
    const work = new Latch();
    let written = 0;
    const fences = httpFence<Request>({ resource: () => 'r', timeout: '200ms' });
    const handle = fences.handler((req) =>
      req.headers.get('holdfast-token') === '1'
        ? streaming(1, () => work.opened.then(() => void (written += 1)))
        : new Response(`after ${written}`),
    );
    const slow = await handle(ask(1n));
    expect((await handle(ask(2n))).status).toBe(503);
    work.open();
    await slow.arrayBuffer();
    expect(await (await handle(ask(3n))).text()).toBe('after 1');
  });
});

describe('hold', () => {
  test('keeps a request at work though its client has gone and its answer was begun', async () => {
    const work = new Latch();
    const { url, fences } = await service((req, res) => {
      void fences.of(req)!.hold(work.opened);
      res.write('begun');
    });
    const { answered, abort } = abortable(url);
    await answered;
    abort();
    let isIn = false;
    const waiting = next(url, 2n).then((status) => {
      isIn = true;
      return status;
    });
    // The fence is closed to older ones, so the newer one has come. Another resource has time for two requests meanwhile.
    await until(async () => (await next(url, 1n)) === 412);
    for (const token of [1n, 2n]) expect(await next(`${url}/other`, token)).toBe(200);
    expect(isIn).toBe(false);
    work.open();
    expect(await waiting).toBe(200);
  });

  test('works for fetch handlers, also for what rejects, and refuses what comes too late', async () => {
    const fences = httpFence<Request>({ resource: () => 'r', timeout: '20s' });
    const work = new Latch();
    let late: (() => unknown) | undefined;
    const handle = fences.handler(async (req) => {
      if (req.method === 'PUT') {
        const shown = fences.of(req)!;
        late = () => shown.hold(Promise.resolve());
        void shown.hold(work.opened);
      }
      return new Response('ok');
    });
    const ask = async (method: string, token: bigint): Promise<number> =>
      (await handle(new Request('http://x', { method, headers: tokenHeaders(token) }))).status;
    expect(await ask('PUT', 1n)).toBe(200);
    const waiting = ask('GET', 2n);
    work.break(new Error('broken'));
    expect(await waiting).toBe(200);
    expect(() => late!()).toThrow(EngineError);
  });

  test('works for Fastify', async () => {
    const fences = httpFence<{ readonly url: string }>({ resource: ({ url }) => url, timeout: '20s' });
    const app = fastify();
    const work = new Latch();
    let isOver = false;
    app.addHook('preHandler', fences.hook());
    app.get('/r', (req) => {
      if (req.headers['x-free']) return isOver ? 'free' : 'too early';
      void fences.of(req)!.hold(work.opened);
      return 'answered';
    });
    const url = `${await app.listen({ host: '127.0.0.1', port: 0 })}/r`;
    closing.push(() => app.close());
    expect(await (await fetch(url, { headers: tokenHeaders(1n) })).text()).toBe('answered');
    const waiting = fetch(url, { headers: { ...tokenHeaders(2n), 'x-free': '1' } });
    await until(async () => (await fetch(url, { headers: tokenHeaders(1n) })).status === 412);
    isOver = true;
    work.open();
    expect(await (await waiting).text()).toBe('free');
  });
});

describe('what is remembered', () => {
  test('two requests of one holder that wait for an older one stop nothing and nobody', async () => {
    const fences = httpFence<Request>({ resource: () => 'r', timeout: '20s' });
    const latch = new Latch();
    const handle = fences.handler(async (req) => {
      if (req.method === 'PUT') await latch.opened;
      return new Response('ok');
    });
    const ask = async (method: string, token: bigint): Promise<number> =>
      (await handle(new Request('http://x', { method, headers: tokenHeaders(token) }))).status;
    const began = performance.now();
    const old = ask('PUT', 5n);
    const young = [ask('GET', 6n), ask('GET', 6n)];
    await new Promise((resolve) => setImmediate(resolve));
    latch.open();
    expect(await Promise.all([old, ...young])).toEqual([200, 200, 200]);
    expect(performance.now() - began).toBeLessThan(10_000);
  });

  /** As a service answers for what does not exist, or breaks. */
  const statuses: Record<string, number> = { '/404': 404, '/401': 401, '/200': 200, '/303': 303, '/500': 500 };
  const answering = (options: Partial<HttpFenceOptions<Request>>) => {
    const fences = httpFence<Request>({ resource: ({ url, method }) => method + url, mostResources: 3, ...options });
    const handle = fences.handler(async ({ url }) => {
      const path = /^\/\w+/.exec(new URL(url).pathname)![0];
      if (path === '/throws') throw new Error('broken');
      return new Response(null, { status: statuses[path]! });
    });
    return async (method: string, path: string, token = 5n): Promise<number> =>
      handle(new Request(`http://x${path}`, { method, headers: tokenHeaders(token) })).then(
        ({ status }) => status,
        () => 0,
      );
  };

  test('is nothing of requests that were refused, however many paths are made up', async () => {
    const ask = answering({});
    for (let made = 0; made < 10; made += 1) {
      expect(await ask('GET', `/404/${made}`)).toBe(404);
      expect(await ask('PUT', `/401/${made}`, 9n)).toBe(401);
      expect(await ask('GET', `/500/${made}`)).toBe(500);
      expect(await ask('GET', `/throws/${made}`)).toBe(0);
    }
    expect(await ask('PUT', '/401/1', 4n)).toBe(401);
  });

  test.each([
    ['GET', '/200', 200],
    ['PUT', '/303', 303],
    ['PUT', '/500', 500],
    ['DELETE', '/throws', 0],
  ])('is what may have worked: %s %s', async (method, path, status) => {
    const ask = answering({});
    expect(await ask(method, path, 5n)).toBe(status);
    expect(await ask(method, path, 4n)).toBe(412);
    expect(await ask(method, path, 5n)).toBe(status);
  });

  test('is what the service says, where an answer of its own means something', async () => {
    const ask = answering({ refused: (status) => status === 401 });
    expect([await ask('GET', '/404', 5n), await ask('GET', '/404', 4n)]).toEqual([404, 412]);
  });

  test('is nothing of a file that is not there, nor of an upload that was never whole', async () => {
    let arrived = 0;
    const { url } = await service(
      (req, res) => {
        arrived += 1;
        if (req.method === 'GET') pipeline(createReadStream(join(folder, req.path)), res, () => {});
      },
      { mostResources: 2 },
    );
    for (let made = 0; made < 6; made += 1) {
      await fetch(`${url}/none${made}`, { headers: tokenHeaders(1n) }).catch(() => {});
      const before = arrived;
      const { abort } = abortable(`${url}/put${made}`, { method: 'PUT', length: 100 });
      await until(() => arrived > before);
      abort();
      // The next one waits until it is over.
      expect(await next(`${url}/put0`, BigInt(made + 2))).toBe(200);
    }
    expect(await next(`${url}/none1`, 1n)).toBe(200);
  });

  test('is not in the way of a store, which remembers', async () => {
    const opened = new Map<string, bigint>();
    const store = {
      open: async (resource: string, token: bigint) => {
        const newest = opened.get(resource) ?? 0n;
        if (token < newest) throw new StaleTokenError(resource, token, newest);
        opened.set(resource, token);
      },
    };
    const ask = answering({ store });
    for (let path = 0; path < 10; path += 1) expect(await ask('GET', `/200/${path}`, 5n)).toBe(200);
    expect(await ask('GET', '/200/1', 4n)).toBe(412);
  });

  test.each([0, -1, 1.5, Number.NaN, '5'])('%s is no number of resources', (mostResources) => {
    expect(() => httpFence({ resource: () => 'r', mostResources: mostResources as number })).toThrow('mostResources');
  });
});

describe('headers and answers', () => {
  test.each(['1'.repeat(8_000), `${' '.repeat(4_000)}1`, '1; shared'.padEnd(9_000), '00000000000000000001'])(
    'a header that is too long is refused unread',
    async (header) => {
      const handle = httpFence<Request>({ resource: () => 'r' }).handler(async () => new Response('ok'));
      const plain = { headers: { get: () => header }, method: 'GET' } as unknown as Request;
      expect((await handle(plain)).status).toBe(400);
    },
  );

  test.each([
    ['a token of letters', { token: 'abc', newest: '5' }],
    ['a token of a million digits', { token: '9'.repeat(1_000_000), newest: '5' }],
    ['a newest of many digits', { token: '5', newest: '9'.repeat(1_000) }],
    ['a negative token', { token: '-5', newest: '5' }],
    ['numbers', { token: 5, newest: 6 }],
    ['objects', { token: {}, newest: [] }],
    ['none', {}],
    ['a lock that is no text', { lock: { a: 1 }, token: '5', newest: '6' }],
  ])('a service that refuses with %s gives an error of ours, or its answer', async (_name, words) => {
    const answer = { code: 'HOLDFAST_STALE_TOKEN', lock: 'r', ...words };
    const fetch = async (): Promise<Response> => Response.json(answer, { status: 412 });
    const outcome = await fencedFetch(5n, { fetch })('http://x').catch((error: unknown) => error);
    expect(outcome instanceof HoldfastError || outcome instanceof Response).toBe(true);
    if (outcome instanceof Response) expect(await outcome.json()).toEqual(answer);
  });

  test.each(['', 'null', '5', '"x"', '[]', '{', `{"code":"${'x'.repeat(100_000)}"}`])(
    'a 412 that is not of a fence is handed on: %.20s',
    async (body) => {
      const fetch = async (): Promise<Response> => new Response(body, { status: 412 });
      const answer = await fencedFetch(5n, { fetch })('http://x');
      expect([answer.status, await answer.text()]).toEqual([412, body]);
    },
  );
});

/** Until it is so; the runner ends what never is. */
async function until(condition: () => boolean | Promise<boolean>): Promise<void> {
  while (!(await condition())) await new Promise((resolve) => setTimeout(resolve, 5));
}
