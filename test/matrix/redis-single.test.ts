import { startRedis } from '../servers/redis.js';
import { onEveryClient } from './redis-conformance.js';

await onEveryClient({
  name: 'redis',
  start: async () => {
    const server = await startRedis();
    return { connect: (clients) => clients.single(server.port), stop: () => server.stop() };
  },
});
