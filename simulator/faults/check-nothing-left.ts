import { COMPLETION_PAUSE_MS } from '../../packs/fetching/file-completion.js';
import { DAMAGE_EVENT } from '../../worker-node/loader/expert-loader.js';
import type { SimulatedCluster } from '../cluster/simulated-cluster.js';
import type { VirtualRuntime } from '../../shared/base/runtime/virtual-runtime.js';
import type { SimulatedNode } from '../cluster/simulated-node.js';
import type { Violation } from './accounts/violation.js';
import { HANDLE_KINDS } from './device-handles.js';
import type { LoggedLine, ScenarioWorld } from './scenario-world.js';
import type { Scenario } from './scenario.js';

/** Timers of all nodes at rest: those for requests have ended, so the remaining ones belong to the daemons. */
export type IdleTimers = ReadonlyMap<string, number>;

/** Call without requests: each node's timers at rest, for comparison after further requests. */
export function idleTimers(cluster: SimulatedCluster): IdleTimers {
  return new Map([...cluster.nodes.values()].map(({ id, runtime }) => [id, runtime.openCounts.timers]));
}

/** Time without requests after which unneeded resources must be gone. */
const QUIET_MS = 6000;

/**
 * Time without requests until `checkQuiet`. `logged`: lines of the daemons since `idleTimers`. A worker that found damage in a pack that it had
 * fetched whole completes the pack again COMPLETION_PAUSE_MS after the last damage, and has a timer until then. The other files come quickly.
 */
export function quietMs(logged: readonly Pick<LoggedLine, 'event'>[]): number {
  const isCompletedLater = logged.some(({ event }) => event === DAMAGE_EVENT);
  return isCompletedLater ? COMPLETION_PAUSE_MS + QUIET_MS : QUIET_MS;
}

/** After a time without requests: no node may hold resources or timers for a request. */
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
    const sequences = (world.devices.get(node.id)?.handles.sequences ?? 0) - node.retainedSequences();
    const { timers, turns, works } = node.runtime.openCounts;
    if (sequences > 0) held.push(['native sequences', sequences]);
    if (turns + works > 0) held.push(['turns', turns], ['works', works]);
    if (timers > timersAllowed(node, before)) held.push(['timers', timers]);
    if (held.length > 0) left.push(`${node.id} holds ${held.map(([name, count]) => `${count} ${name}`).join(', ')}`);
  }
  return left.map((detail) => ({ invariant: 'nothing is left', detail: `without requests: ${detail}` }));
}

/** After all nodes have been stopped in order: they must have given all resources back. */
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

/** A peer that sends nonsense may have sent predictions for placements that never come; their number is bounded. */
function mayStay(name: string, { faults }: Scenario): boolean {
  return (
    (name === 'earlyPredictions' || name === 'ownWorker.earlyPredictions') &&
    faults.some(({ kind }) => kind === 'nonsense')
  );
}

/** A pause before a dial, or a join, may have begun meanwhile. */
function timersAllowed({ id }: SimulatedNode, before: IdleTimers): number {
  return (before.get(id) ?? 0) + TIMERS_OF_OTHERS;
}

const TIMERS_OF_OTHERS = 0;
