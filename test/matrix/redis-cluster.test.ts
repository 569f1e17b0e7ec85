import { startCluster } from '../servers/redis-cluster.js';
import { onEveryClient } from './redis-conformance.js';

await onEveryClient({
  name: 'cluster',
  start: async () => {
    const cluster = await startCluster();
    return { connect: (clients) => clients.cluster(cluster.hosts), stop: () => cluster[Symbol.asyncDispose]() };
  },
});
