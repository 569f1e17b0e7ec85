/** One Redis without persistence: a restart begins empty, as a cache does that lost its machine. */
import { ask, LOOPBACK } from './ports.js';
import { type Program, provide } from './provide.js';
import { type Place, type Server, type ServerOptions, startServer } from './server.js';

export interface RedisOptions extends Pick<ServerOptions, 'choosePort' | 'env' | 'host'> {
  /** More words of the command line, such as `['--appendonly', 'yes']`; later ones win. */
  readonly args?: readonly string[] | ((place: Place) => readonly string[]);
}

export async function startRedis(options: RedisOptions = {}): Promise<Server> {
  const program = provideRedis();
  const { args = [] } = options;
  return startServer({
    ...options,
    name: 'redis',
    program,
    args: (place) => [
      ...['--port', `${place.port}`, '--bind', place.host, '--daemonize', 'no', '--dir', place.data],
      ...['--save', '', '--appendonly', 'no'],
      ...unprotected(place),
      // The default waits ten seconds for replicas that are behind.
      ...['--shutdown-timeout', '0'],
      ...(typeof args === 'function' ? args(place) : args),
    ],
    ready: answersPing,
  });
}

/** Also the program of a Sentinel. */
export function provideRedis(): Program {
  return provide('redis-server', ['redis-server', 'redis-tools']);
}

/** Without a password Redis takes only clients of loopback; on a host of ours there is nobody else. */
export function unprotected({ host }: Place): readonly string[] {
  return host === LOOPBACK ? [] : ['--protected-mode', 'no'];
}

export async function answersPing(place: Place): Promise<boolean> {
  return (await ask(place, 'PING\r\n')) === '+PONG\r\n';
}
