/** Values behind HTTP, for guards.ts: what is asked for under /fenced needs a token that is not stale. */
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { text } from 'node:stream/consumers';
import { httpFence } from 'holdfast/fence';

export interface GuardedService extends AsyncDisposable {
  readonly url: string;
}

export async function startGuardedService(): Promise<GuardedService> {
  const values = new Map<string, number>();
  const fences = httpFence<Request>({ resource: ({ url }) => /\/fenced\/(.*)$/.exec(url)?.[1] });
  const handle = fences.handler(async (request) => {
    const name = new URL(request.url).pathname.split('/').slice(2).join('/');
    if (request.method === 'PUT') values.set(name, Number(await request.text()));
    return new Response(`${values.get(name) ?? 0}`);
  });
  const server = createServer((incoming, outgoing) => {
    void (async () => {
      const { method = 'GET', url = '/', headers } = incoming;
      const body = method === 'PUT' ? await text(incoming) : null;
      const answer = await handle(
        new Request(`http://x${url}`, { method, body, headers: headers as Record<string, string> }),
      );
      // Not kept alive: a process of the workload must have nothing open in the end.
      outgoing.writeHead(answer.status, { ...Object.fromEntries(answer.headers), connection: 'close' });
      outgoing.end(await answer.text());
    })().catch(() => outgoing.destroy());
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    [Symbol.asyncDispose]: async () => {
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
    },
  };
}
