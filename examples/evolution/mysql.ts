/** What the chapters on MySQL share. */
import { type Connection, createConnection } from 'mysql2/promise';
import { Holdfast } from '../../src/index.js';
import { LOOPBACK } from '../../test/servers/ports.js';

interface At {
  readonly port: number;
}

export async function connectionTo({ port }: At): Promise<Connection & Disposable> {
  const connection = await createConnection({ host: LOOPBACK, port, user: 'root', database: 'test' });
  return Object.assign(connection, { [Symbol.dispose]: () => connection.destroy() });
}

export function urlOf({ port }: At, strategy: string): string {
  return `mysql://root@${LOOPBACK}:${port}/test?strategy=${strategy}`;
}

export function holdfastOn(server: At, strategy: string, label: string): Holdfast {
  return new Holdfast(urlOf(server, strategy), { label });
}
