import type { PlacedWorker, Placement } from '../rpc/messages.js';

export interface PlacementInput {
  epoch: number;
  /** Ids are distinct; their order does not matter. */
  workers: readonly PlacedWorker[];
  layers: number;
  experts: number;
  expertsPerToken: number;
  /** Workers per group before spares; 'auto': top-k. Clamped to the number of workers. */
  groupSize: number | 'auto';
}

/**
 * Groups of workers that take the layers in turn (OD-MoE section 3.1). A group has top-k workers, so that each loads one
 * expert of a layer, or all workers where there are fewer; workers left over become spares, spread so that group sizes
 * differ by at most one. No workers: no groups.
 */
export function planPlacement(input: PlacementInput): Placement {
  const workers = [...input.workers].sort((left, right) => (left.id < right.id ? -1 : left.id > right.id ? 1 : 0));
  const wanted = input.groupSize === 'auto' ? input.expertsPerToken : input.groupSize;
  const size = Math.max(1, Math.min(wanted, workers.length));
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
  };
}

/** Layers that a worker's group serves; none for a worker that is not placed. */
export function layersOfWorker(placement: Placement, workerId: string): number[] {
  const layers = Array.from({ length: placement.layers }, (_, layer) => layer);
  return layers.filter((layer) => groupForLayer(placement, layer).includes(workerId));
}

/** Ids of the workers that serve a layer; empty only when the placement has no workers. */
export function groupForLayer(placement: Placement, layer: number): readonly string[] {
  return placement.groups[layer % placement.groups.length]?.workerIds ?? [];
}
