/**
 * Clients of Sentinel and of a cluster find their servers by themselves, around any proxy whose address they were given.
 * So a worker's own network leads them there: whatever it connects to, it connects to that server's proxy.
 */
import net from 'node:net';
import { syncBuiltinESMExports } from 'node:module';

/** From a server's port on loopback to that of the proxy before it. */
export type Routes = Readonly<Record<number, number>>;

export function routeThrough(routes: Routes): void {
  const direct = net.createConnection;
  const routed = (options: net.NetConnectOpts, ...more: []): net.Socket => {
    const through = 'port' in options ? routes[options.port] : undefined;
    return direct(through === undefined ? options : { ...options, port: through }, ...more);
  };
  net.createConnection = routed as typeof direct;
  syncBuiltinESMExports();
}
