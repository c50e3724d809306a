import type { SimulatedCluster } from '../cluster/simulated-cluster.js';
import type { VirtualRuntime } from '../../shared/base/runtime/virtual-runtime.js';
import type { SimulatedNode } from '../cluster/simulated-node.js';
import type { Violation } from './accounts/violation.js';
import { HANDLE_KINDS } from './device-handles.js';
import type { ScenarioWorld } from './scenario-world.js';
import type { Scenario } from './scenario.js';

/** Timers that all nodes have when nobody asks for anything: what runs for requests has ended, what remains belongs to the daemons. */
export type IdleTimers = ReadonlyMap<string, number>;

/** Without requests: what each node's timers are at rest, to be compared with what they are after further requests. */
export function idleTimers(cluster: SimulatedCluster): IdleTimers {
  return new Map([...cluster.nodes.values()].map(({ id, runtime }) => [id, runtime.openCounts.timers]));
}

/** Nobody has asked for anything for a while: nobody holds anything for a request, and no timer is left of one. */
export function checkQuiet(
  cluster: SimulatedCluster,
  world: ScenarioWorld,
  scenario: Scenario,
  before: IdleTimers,
): Violation[] {
  const left: string[] = clientsLeft(cluster);
  for (const node of cluster.nodes.values()) {
    if (!node.isReady) continue;
    const held = Object.entries(node.openCounts() ?? {}).filter(
      ([name, count]) => count > 0 && !mayStay(name, scenario),
    );
    const sequences = (world.devices.get(node.id)?.handles.sequences ?? 0) - node.keptSequences();
    const { timers, turns, works } = node.runtime.openCounts;
    if (sequences > 0) held.push(['native sequences', sequences]);
    if (turns + works > 0) held.push(['turns', turns], ['works', works]);
    if (timers > timersAllowed(node, before)) held.push(['timers', timers]);
    if (held.length > 0) left.push(`${node.id} holds ${held.map(([name, count]) => `${count} ${name}`).join(', ')}`);
  }
  return left.map((detail) => ({ invariant: 'nothing is left', detail: `without requests: ${detail}` }));
}

/** All nodes have been stopped in order: they have given everything back. */
export function checkStopped(
  cluster: SimulatedCluster,
  world: ScenarioWorld,
  stopped: readonly { node: SimulatedNode; runtime: VirtualRuntime }[],
): Violation[] {
  const left: string[] = clientsLeft(cluster);
  for (const { node, runtime } of stopped) {
    const { id } = node;
    left.push(...node.leftAtStop.map((thing) => `${id} said that it had stopped, and had ${thing}`));
    left.push(...runtime.living.names().map((thing) => `${id} has ${thing}`));
    if (runtime.openFiles > 0) left.push(`${id} has ${runtime.openFiles} files`);
    const sides = cluster.network.openSides(id);
    if (sides > 0) left.push(`${id} has ${sides} connections`);
    const sources = cluster.network.packSources.openOf(runtime);
    if (sources > 0) left.push(`${id} has ${sources} sources of packs`);
    const handles = world.devices.get(id)?.handles;
    const open = HANDLE_KINDS.filter((kind) => (handles?.[kind] ?? 0) > 0);
    if (open.length > 0) left.push(`${id} has native ${open.map((kind) => `${kind}: ${handles?.[kind]}`).join(', ')}`);
  }
  return left.map((detail) => ({ invariant: 'nothing is left', detail: `after the stop: ${detail}` }));
}

function clientsLeft(cluster: SimulatedCluster): string[] {
  const { timers, works } = cluster.clientOpen;
  return timers + works > 0 ? [`clients have ${timers} timers and ${works} works`] : [];
}

/** A peer that talks nonsense may have told of placements that never come; how much of that waits is bounded. */
function mayStay(name: string, { faults }: Scenario): boolean {
  return (
    (name === 'earlyPredictions' || name === 'ownWorker.earlyPredictions') &&
    faults.some(({ kind }) => kind === 'nonsense')
  );
}

/** A pause of a dial, or a join, may have begun meanwhile. */
function timersAllowed({ id }: SimulatedNode, before: IdleTimers): number {
  return (before.get(id) ?? 0) + TIMERS_OF_OTHERS;
}

const TIMERS_OF_OTHERS = 0;
