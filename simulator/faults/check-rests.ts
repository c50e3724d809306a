import type { SimulatedCluster } from '../cluster/simulated-cluster.js';
import type { Violation } from './accounts/violation.js';
import { HANDLE_KINDS } from './device-handles.js';
import type { ScenarioWorld } from './scenario-world.js';

/** Counts of all that a cluster holds while nobody asks for anything, by node and name. */
export type HeldAtRest = ReadonlyMap<string, number>;

export function heldAtRest(cluster: SimulatedCluster, world: ScenarioWorld): HeldAtRest {
  const held = new Map<string, number>();
  for (const node of cluster.nodes.values()) {
    if (!node.isReady) continue;
    const { id, runtime } = node;
    const note = (name: string, count: number): unknown => held.set(`${name} of ${id}`, count);
    for (const [name, count] of Object.entries(node.openCounts() ?? {})) note(name, count);
    for (const [name, count] of Object.entries(runtime.openCounts)) note(name, count);
    const handles = world.devices.get(id)?.handles;
    for (const kind of HANDLE_KINDS) {
      // Those that are kept for later requests have a bound of their own.
      const kept = kind === 'sequences' ? node.keptSequences() : 0;
      note(`native ${kind}`, (handles?.[kind] ?? 0) - kept);
    }
    note('connections', cluster.network.openSides(id));
    note('files', runtime.openFiles);
    note('sources of packs', cluster.network.packSources.openOf(runtime));
  }
  return held;
}

/** However much has been answered meanwhile, a cluster at rest holds no more than it held at rest before. */
export function checkRests(rests: readonly HeldAtRest[]): Violation[] {
  const [first, ...later] = rests;
  if (first === undefined) return [];
  return later.flatMap((held, rest) =>
    [...held].flatMap(([name, count]) => {
      const before = first.get(name) ?? 0;
      const detail = `${count} ${name} at rest ${rest + 2}, and ${before} at the first one`;
      return count > before ? [{ invariant: 'nothing grows with answers', detail }] : [];
    }),
  );
}
