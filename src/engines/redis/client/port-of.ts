import { ConfigError } from '../../../core/errors.js';
import { IoredisPort, isIoredis } from './ioredis.js';
import { isNodeRedis, NodeRedisPort } from './node-redis.js';
import type { RedisPort } from './port.js';

/** On a client of the user's. */
export function portOf(client: object): RedisPort {
  if (client && isIoredis(client)) return new IoredisPort(client, false);
  if (client && isNodeRedis(client)) return new NodeRedisPort(client);
  throw new ConfigError(
    'redis() takes a URL like "redis://localhost:6379", or a client of ioredis, iovalkey or node-redis 5 or newer.',
  );
}
