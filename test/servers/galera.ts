/**
 * Two nodes of Galera: MariaDBs that both take writes, and compare transactions when they commit.
 *
 * A node that joins needs a copy of the data, which Debian's scripts make with programs of many packages. Here the first node is
 * started alone, ended and copied; what happens after that it sends by itself.
 */
import { existsSync } from 'node:fs';
import { cp, mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { type MariadbOptions, sql, startMariadb } from './mariadb.js';
import { freePort, LOOPBACK } from './ports.js';
import { provideTree } from './provide.js';
import type { Server } from './server.js';
import { startGroup } from './server-group.js';
import { eventually } from './wait.js';

export interface GaleraCluster extends AsyncDisposable {
  readonly nodes: readonly [Server, Server];
}

export function startGalera(): Promise<GaleraCluster> {
  const library = galeraLibrary();
  return startGroup(async (group) => {
    const copy = await mkdtemp(join(tmpdir(), 'holdfast-galera-'));
    try {
      const contact = await freePort();
      let starts = 0;
      const [first] = await group.add([
        startNode(library, contact, '', async ({ data }) => {
          if ((starts += 1) === 2) await cp(data, copy, { recursive: true, filter: (file) => !isOfOneNode(file) });
        }),
      ]);
      await first!.restart();
      const [second] = await group.add([
        startNode(library, await freePort(), `${LOOPBACK}:${contact}`, async ({ data }) => {
          if (!existsSync(join(data, 'mysql'))) await cp(copy, data, { recursive: true });
        }),
      ]);
      const nodes = [first!, second!] as const;
      for (const { port } of nodes) await eventually('it is one of two', () => isOneOfTwo(port));
      return { nodes, [Symbol.asyncDispose]: () => group.stop() };
    } finally {
      await rm(copy, { recursive: true, force: true });
    }
  });
}

/** Throws a NotProvided. */
export function galeraLibrary(): string {
  return join(provideTree(['galera-4']), 'usr/lib/libgalera_smm.so');
}

/** Its cache of what it has sent, and sockets, which can't be copied. */
function isOfOneNode(file: string): boolean {
  return /galera\.cache|gvwstate\.dat|sock/.test(file);
}

/** @param others none: it begins a cluster */
async function startNode(
  library: string,
  port: number,
  others: string,
  prepare: MariadbOptions['prepare'] & {},
): Promise<Server> {
  const provider = [
    ...[`base_host=${LOOPBACK}`, `gmcast.listen_addr=tcp://${LOOPBACK}:${port}`],
    ...[`ist.recv_addr=${LOOPBACK}:${await freePort()}`, 'gcache.size=32M', 'pc.recovery=false'],
  ];
  return startMariadb({
    prepare,
    env: { PATH: `${import.meta.dirname}:${process.env['PATH']}` },
    args: [
      ...['--wsrep-on=ON', `--wsrep-provider=${library}`, '--binlog-format=ROW', '--innodb-autoinc-lock-mode=2'],
      ...[`--wsrep-cluster-address=gcomm://${others}`, `--wsrep-node-address=${LOOPBACK}`],
      ...['--wsrep-sst-method=copied', `--wsrep-provider-options=${provider.join(';')}`],
    ],
  });
}

async function isOneOfTwo(port: number): Promise<void> {
  const names = "'wsrep_cluster_size', 'wsrep_local_state_comment'";
  const rows = await sql(port, `SHOW GLOBAL STATUS WHERE Variable_name IN (${names})`);
  const values = rows.map((row) => String(row['Value'])).sort();
  if (values.join() !== '2,Synced') throw new Error(`Galera is not complete: ${values.join()}`);
}
