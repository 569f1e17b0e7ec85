/** One Redis without persistence: a restart begins empty, as a cache does that lost its machine. */
import { ask, LOOPBACK } from './ports.js';
import { type Program, provide, type ProvideOptions } from './provide.js';
import { type Place, type Server, type ServerOptions, startServer } from './server.js';

export interface RedisOptions extends ProvideOptions, Pick<ServerOptions, 'choosePort' | 'env'> {
  /** More words of the command line, such as `['--appendonly', 'yes']`; later ones win. */
  readonly args?: readonly string[] | ((place: Place) => readonly string[]);
}

export async function startRedis(options: RedisOptions = {}): Promise<Server> {
  const program = await provideRedis(options);
  const { args = [] } = options;
  return startServer({
    ...options,
    name: 'redis',
    program,
    args: (place) => [
      ...['--port', `${place.port}`, '--bind', LOOPBACK, '--daemonize', 'no', '--dir', place.data],
      ...['--save', '', '--appendonly', 'no'],
      // The default waits ten seconds for replicas that are behind.
      ...['--shutdown-timeout', '0'],
      ...(typeof args === 'function' ? args(place) : args),
    ],
    ready: answersPing,
  });
}

/** Also the program of a Sentinel. */
export function provideRedis(options: ProvideOptions): Promise<Program> {
  return provide('redis-server', ['redis-server', 'redis-tools'], options);
}

export async function answersPing({ port }: Place): Promise<boolean> {
  return (await ask(port, 'PING\r\n')) === '+PONG\r\n';
}
