/** One memcached. */
import { ask, LOOPBACK } from './ports.js';
import { provide, type ProvideOptions } from './provide.js';
import { type Server, type ServerOptions, startServer } from './server.js';

export async function startMemcached(options: ProvideOptions & Pick<ServerOptions, 'env'> = {}): Promise<Server> {
  const program = await provide('memcached', ['memcached'], options);
  // It refuses to run as root unless told whom to run as. Root itself is allowed, and changing the user would make the
  // kernel forget that it has to end with us.
  const user = process.getuid?.() === 0 ? ['-u', 'root'] : [];
  return startServer({
    ...options,
    name: 'memcached',
    program,
    args: ({ port }) => ['-l', LOOPBACK, '-p', `${port}`, '-U', '0', '-m', '64', '-t', '2', ...user],
    ready: async ({ port }) => (await ask(port, 'version\r\n')).startsWith('VERSION '),
  });
}
