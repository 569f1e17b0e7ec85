/** What one node of a Redis Cluster believes about all of them. Nodes learn by gossip, so beliefs differ for a while. */
import type { Where } from './ports.js';
import { command } from './resp.js';

export interface NodeView {
  readonly id: string;
  /** Such as `myself`, `master`, `slave`, `fail?`, `fail`, `handshake`. */
  readonly flags: readonly string[];
  /** `-` for a primary. */
  readonly primaryId: string;
  /** Of two claims to a slot the one with the higher epoch is right. */
  readonly epoch: number;
  readonly connected: boolean;
  /** First and last, both included. */
  readonly slots: readonly (readonly [number, number])[];
}

export async function viewOf(node: Where): Promise<NodeView[]> {
  const lines = String(await command(node, 'CLUSTER', 'NODES')).split('\n');
  return lines.filter((line) => line !== '').map(parseNode);
}

export function owns(node: NodeView, slot: number): boolean {
  return node.slots.some(([first, last]) => first <= slot && slot <= last);
}

/** Who is whose replica and who has which slots: the same text means the same belief. */
export function shapeOf(view: readonly NodeView[]): string {
  const lines = view.map(({ id, primaryId, slots }) => `${id} ${primaryId} ${slots.join(' ')}`);
  return lines.sort().join('\n');
}

/** id address flags primary-id ping-sent pong-received epoch link-state slots… */
function parseNode(line: string): NodeView {
  const [id = '', , flags = '', primaryId = '', , , epoch, link, ...slots] = line.split(' ');
  // A slot on its way to another node is listed once more, in brackets.
  const ranges = slots.filter((range) => !range.startsWith('[')).map((range) => range.split('-').map(Number));
  return {
    id,
    flags: flags.split(','),
    primaryId,
    epoch: Number(epoch),
    connected: link === 'connected',
    slots: ranges.map(([first = Number.NaN, last = first]) => [first, last] as const),
  };
}
