/** One Redis without persistence: a restart begins empty, as a cache does that lost its machine. */
import { ask, LOOPBACK } from './ports.js';
import { provide, type ProvideOptions } from './provide.js';
import { type Server, type ServerOptions, startServer } from './server.js';

export interface RedisOptions extends ProvideOptions, Pick<ServerOptions, 'choosePort'> {
  /** More words of the command line, such as `['--appendonly', 'yes']`; later ones win. */
  readonly args?: readonly string[];
}

export async function startRedis(options: RedisOptions = {}): Promise<Server> {
  const program = await provide('redis-server', ['redis-server', 'redis-tools'], options);
  return startServer({
    ...options,
    name: 'redis',
    program,
    args: ({ port, data }) => [
      ...['--port', `${port}`, '--bind', LOOPBACK, '--daemonize', 'no', '--dir', data],
      ...['--save', '', '--appendonly', 'no'],
      // The default waits ten seconds for replicas that are behind.
      ...['--shutdown-timeout', '0'],
      ...(options.args ?? []),
    ],
    ready: async ({ port }) => (await ask(port, 'PING\r\n')) === '+PONG\r\n',
  });
}
