import { naturalOrder } from '../../shared/base/text/natural-order.js';
import { printableLine } from '../../shared/base/text/printable-text.js';
import { formatBytes } from '../../shared/base/text/units.js';
import type { NodeStatus, StatusReply } from '../../shared/wire/messages.js';
import { shortRole } from '../output/node-json.js';
import { tableLines } from '../output/table.js';

/** The model that a cluster serves, and where its pack lies. */
export interface ClusterPacks {
  cluster: string;
  /** Name of the model. */
  name: string;
  /** Digest of the pack's manifest. */
  digest: string;
  /** The connected daemons, as people count. */
  nodes: NodePack[];
}

/** A daemon's pack, as main knows it. */
export interface NodePack {
  id: string;
  role: string;
  name: string;
  digest: string;
  state: NodePackState;
  /** Bytes of experts that it needs of the pack, and the part of them that it has. 0 of 0: it has the whole pack, or has not told it yet. */
  neededBytes: number;
  heldBytes: number;
  /** Why it fetches nothing now; empty: nothing prevents it. */
  problem: string;
  /** Experts whose bytes on its disk were found damaged, and that have not been loaded since. */
  damagedExperts: number;
}

/** part: all experts that it needs, and not the others. untold: a worker that has connected and not told main yet what it has. */
export type NodePackState = 'whole' | 'part' | 'fetching' | 'untold';

/** Most daemons in the table. */
const SHOWN_LIMIT = 64;
const DIGEST_DIGITS = 12;

/** The packs of the daemons that main knows; null: main is not among them. Pure. */
export function clusterPacks({ nodes, placement, drained = [] }: StatusReply): ClusterPacks | null {
  const main = nodes.find(({ identity }) => identity.role === 'ROLE_MAIN');
  if (main === undefined) return null;
  const told = new Set([...(placement?.workers ?? []), ...drained].map(({ id }) => id));
  const { cluster, modelName: name, packDigest: digest } = main.identity;
  const packs = nodes.map((node) => nodePack(node, told.has(node.identity.id)));
  return { cluster, name, digest, nodes: packs.sort((left, right) => naturalOrder(left.id, right.id)) };
}

/** `isTold`: main has it among those that it gives work, or drains. Main places workers with a whole pack at once. */
function nodePack({ identity, fetchNeededBytes, fetchHeldBytes, fetchProblem, damagedExperts }: NodeStatus, isTold: boolean): NodePack {
  const { id, role, modelName: name, packDigest: digest } = identity;
  const isWhole = fetchNeededBytes === 0 && fetchProblem === '';
  const fetched = fetchHeldBytes < fetchNeededBytes || fetchProblem !== '' ? 'fetching' : 'part';
  const whole = role === 'ROLE_WORKER' && !isTold ? 'untold' : 'whole';
  return {
    id,
    role: shortRole(role),
    name,
    digest,
    state: isWhole ? whole : fetched,
    neededBytes: fetchNeededBytes,
    heldBytes: fetchHeldBytes,
    problem: fetchProblem,
    damagedExperts,
  };
}

/** The lines about a cluster's pack. Pure. */
export function clusterPackLines({ cluster, name, digest, nodes }: ClusterPacks): string[] {
  const shown = nodes.slice(0, SHOWN_LIMIT);
  const rows = shown.map((node) => [node.id, node.role, printableLine(stateWords(node, digest))]);
  const columns = [
    { title: 'node', align: 'left' },
    { title: 'role', align: 'left' },
    { title: 'what it has of the pack', align: 'left' },
  ] as const;
  const left = nodes.length - shown.length;
  return [
    printableLine(`cluster "${cluster}" serves ${name} (${digest.slice(0, DIGEST_DIGITS)}); connected to its main:`),
    ...tableLines(columns, rows),
    ...(left === 0 ? [] : [`and ${left} more, which --json lists`]),
  ];
}

function stateWords(node: NodePack, servedDigest: string): string {
  const { state, neededBytes, heldBytes, problem, damagedExperts, digest, name } = node;
  const percent = neededBytes === 0 ? 0 : Math.floor((100 * heldBytes) / neededBytes);
  const held = {
    whole: 'whole',
    part: `the part that it needs, ${formatBytes(neededBytes)}`,
    fetching: `fetching ${formatBytes(heldBytes)} of ${formatBytes(neededBytes)} (${percent} %)`,
    untold: 'not told yet',
  }[state];
  const other = digest === servedDigest ? '' : ` of another pack, ${name} (${digest.slice(0, DIGEST_DIGITS)})`;
  const experts = damagedExperts === 1 ? '1 expert is' : `${damagedExperts} experts are`;
  const damage = damagedExperts === 0 ? '' : `; ${experts} damaged and fetched anew when needed`;
  return `${held}${other}${problem === '' ? '' : `; held up: ${problem}`}${damage}`;
}
