import { ownWorkerId } from '../../main-node/own-worker.js';
import type { SimulatedCluster } from '../cluster/simulated-cluster.js';
import type { MessageTap } from '../network/channel.js';
import { MAIN_ID } from '../simulate/cluster-set-up.js';
import type { Violation } from './accounts/violation.js';
import type { FaultKind, Scenario } from './scenario.js';

/** Longest age of a status: nodes send their status every second. */
const STATUS_LIMIT_MS = 2000;
/** A worker that gave wrong values or none may be set aside for longer than a scenario lasts, or may lack experts that it fetches. */
const MAY_BE_SET_ASIDE: ReadonlySet<FaultKind> = new Set([
  'failingReads',
  'flippedBits',
  'falseValues',
  'falseNumbers',
  'deviceLost',
  'memoryRefused',
]);

/** Records when main last got the status of each node, and the workers of its latest placement. */
export class HeardNodes {
  private readonly heardMs = new Map<string, number>();
  private placed: ReadonlySet<string> = new Set();

  constructor(private readonly nowMs: () => number) {}

  readonly messages: MessageTap = (way, from, to, message) => {
    if (way === 'arrived' && to === MAIN_ID && message.kind === 'status') this.heardMs.set(from, this.nowMs());
    if (way === 'sent' && from === MAIN_ID && message.kind === 'placement')
      this.placed = new Set(message.placement.workers.map(({ id }) => id));
  };

  isHeard(id: string): boolean {
    return this.nowMs() - (this.heardMs.get(id) ?? -Infinity) <= STATUS_LIMIT_MS;
  }

  isPlaced(id: string): boolean {
    return this.placed.has(id);
  }
}

/** Long after the last fault, main must be connected to every running node, and must have placed every worker unless there is a reason against it. */
export function checkUsedNodes(
  cluster: SimulatedCluster,
  scenario: Scenario,
  heard: HeardNodes,
  isRemoved: (id: string) => boolean = () => false,
): Violation[] {
  const isLocal = scenario.nodes[0]?.settings.main.experts === 'local';
  const problems = scenario.nodes.flatMap(({ settings: { id, role }, fetches }) => {
    if (isRemoved(id)) return heard.isPlaced(id) ? [`main uses ${id}, which was removed`] : [];
    if (id === MAIN_ID || cluster.nodes.get(id)?.isReady !== true || (role === 'worker' && isLocal)) return [];
    if (!heard.isHeard(id)) return [`main hears nothing of ${id}, which runs`];
    if (role !== 'worker' || fetches || maySetAside(scenario, id) || heard.isPlaced(id)) return [];
    return [`main does not use ${id}, which runs and tells its status`];
  });
  return problems.map((detail) => ({ invariant: 'nodes that run are used', detail }));
}

function maySetAside({ faults }: Scenario, id: string): boolean {
  return faults.some(({ kind, node }) => MAY_BE_SET_ASIDE.has(kind) && (node === id || ownWorkerId(node) === id));
}
