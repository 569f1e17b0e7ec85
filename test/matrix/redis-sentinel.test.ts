import { startSentinel } from '../servers/redis-sentinel.js';
import { onEveryClient } from './redis-conformance.js';

await onEveryClient({
  name: 'sentinel',
  start: async () => {
    const sentinel = await startSentinel();
    return {
      connect: (clients) => clients.sentinel(sentinel.hosts, sentinel.name),
      stop: () => sentinel[Symbol.asyncDispose](),
    };
  },
});
