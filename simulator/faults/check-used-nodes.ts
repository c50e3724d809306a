import { ownWorkerId } from '../../main-node/own-worker.js';
import type { MessageTap } from '../network/channel.js';
import type { SimulatedCluster } from '../cluster/simulated-cluster.js';
import type { Violation } from './accounts/violation.js';
import { MAIN, type FaultKind, type Scenario } from './scenario.js';

/** Nodes tell their status each second. */
const STATUS_LIMIT_MS = 2000;
/** A worker that gave wrong or no values may be set aside for longer than a scenario lasts, or lacks what it fetches. */
const MAY_BE_SET_ASIDE: ReadonlySet<FaultKind> = new Set([
  'failingReads',
  'flippedBits',
  'falseValues',
  'deviceLost',
  'memoryRefused',
]);

/** Notes when main last heard of the status of each node, and whom it has placed last. */
export class HeardNodes {
  private readonly heardMs = new Map<string, number>();
  private placed: ReadonlySet<string> = new Set();

  constructor(private readonly nowMs: () => number) {}

  readonly messages: MessageTap = (way, from, to, message) => {
    if (way === 'arrived' && to === MAIN && message.kind === 'status') this.heardMs.set(from, this.nowMs());
    if (way === 'sent' && from === MAIN && message.kind === 'placement')
      this.placed = new Set(message.placement.workers.map(({ id }) => id));
  };

  isHeard(id: string): boolean {
    return this.nowMs() - (this.heardMs.get(id) ?? -Infinity) <= STATUS_LIMIT_MS;
  }

  isPlaced(id: string): boolean {
    return this.placed.has(id);
  }
}

/** Long after the last fault main is connected to every node that runs, and has placed every worker that nothing speaks against. */
export function checkUsedNodes(cluster: SimulatedCluster, scenario: Scenario, heard: HeardNodes): Violation[] {
  const isLocal = scenario.nodes[0]?.settings.main.experts === 'local';
  const problems = scenario.nodes.flatMap(({ settings: { id, role }, fetches }) => {
    if (id === MAIN || cluster.nodes.get(id)?.isReady !== true || (role === 'worker' && isLocal)) return [];
    if (!heard.isHeard(id)) return [`main hears nothing of ${id}, which runs`];
    if (role !== 'worker' || fetches || maySetAside(scenario, id) || heard.isPlaced(id)) return [];
    return [`main does not use ${id}, which runs and tells its status`];
  });
  return problems.map((detail) => ({ invariant: 'nodes that run are used', detail }));
}

function maySetAside({ faults }: Scenario, id: string): boolean {
  return faults.some(({ kind, node }) => MAY_BE_SET_ASIDE.has(kind) && (node === id || ownWorkerId(node) === id));
}
