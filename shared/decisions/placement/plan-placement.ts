import type { PlacedWorker, Placement } from '../../wire/messages.js';
import { chooseGroupSize, type LayerCosts } from './group-size.js';

export interface PlacementInput {
  epoch: number;
  /** Ids are distinct; their order does not matter. */
  workers: readonly PlacedWorker[];
  layers: number;
  experts: number;
  expertsPerToken: number;
  /** Workers per group before spares; 'auto': by cost. At most the number of workers. */
  groupSize: number | 'auto';
  /** Costs that decide the size if it is 'auto'; absent: loads alone decide. */
  costs?: LayerCosts;
  /** Number of strict homes of each expert; absent or 0: experts belong to the group of their layer. */
  homes?: number;
  /** True: experts are dealt to all workers, whatever the group of the layer. Not used with strict homes. */
  spread?: boolean;
}

/** If only loads count, top-k workers share a layer. */
const LOADS_ALONE: LayerCosts = { executeMs: 0, reachMs: 0, loadMs: 1 };

/**
 * Groups of workers that take the layers in turn (OD-MoE section 3.1). Workers that do not fill a group become spares. They are spread so that
 * group sizes differ by at most one. No workers: no groups. With strict homes all workers are one group.
 */
export function planPlacement(input: PlacementInput): Placement {
  const workers = [...input.workers].sort((left, right) => (left.id < right.id ? -1 : left.id > right.id ? 1 : 0));
  const homes = Math.min(input.homes ?? 0, workers.length);
  const size = Math.max(1, homes > 0 ? workers.length : Math.min(groupSizeOf(input), workers.length));
  const groupCount = Math.floor(workers.length / size);
  const groups = Array.from({ length: groupCount }, (_, group) => {
    const first = Math.floor((group * workers.length) / groupCount);
    const end = Math.floor(((group + 1) * workers.length) / groupCount);
    return { workerIds: workers.slice(first, end).map((worker) => worker.id) };
  });
  return {
    epoch: input.epoch,
    workers,
    groups,
    layers: input.layers,
    experts: input.experts,
    expertsPerToken: input.expertsPerToken,
    homes,
    spread: input.spread === true && homes === 0,
  };
}

function groupSizeOf({ groupSize, workers, expertsPerToken, costs }: PlacementInput): number {
  if (groupSize !== 'auto') return groupSize;
  return chooseGroupSize(workers.length, expertsPerToken, costs ?? LOADS_ALONE).size;
}

/** Layers that a worker's group serves, or all layers if experts are dealt to all workers; none for a worker that is not placed. */
export function layersOfWorker(placement: Placement, workerId: string): number[] {
  const layers = Array.from({ length: placement.layers }, (_, layer) => layer);
  if (placement.spread) return placement.workers.some(({ id }) => id === workerId) ? layers : [];
  return layers.filter((layer) => groupForLayer(placement, layer).includes(workerId));
}

/** Ids of the workers that serve a layer; empty only when the placement has no workers. */
export function groupForLayer(placement: Placement, layer: number): readonly string[] {
  return placement.groups[layer % placement.groups.length]?.workerIds ?? [];
}
