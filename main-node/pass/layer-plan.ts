import { requirePresent } from '../../shared/base/errors/assert-invariant.js';
import { expertsByWorker } from '../../shared/decisions/placement/experts-by-worker.js';
import { takersOf } from './joint-assignment.js';
import type { CachingWorkers } from '../../shared/decisions/placement/cached-assignment.js';
import { matchExperts } from './match-experts.js';
import type { Placement } from '../../shared/wire/messages.js';
import type { ActivatedRow } from './activated-experts.js';
import type { ExpertBatch } from './expert-batches.js';
import type { AnnouncedLayer } from './announcements.js';

/** The plan for a layer's experts once its router has chosen. */
export interface LayerPlan {
  /** Batches in the order of sending. */
  batches: ExpertBatch[];
  /** worker -> experts that were announced to it and that it is not asked for. */
  releases: ReadonlyMap<string, number[]>;
  /** Experts that run on the worker to which they were announced. */
  foreseen: ReadonlySet<number>;
}

export interface LayerPlanOptions {
  spread: 'group' | 'all';
  /** The pass has rows of one sequence's answer alone: they stay with the layer's group however many experts they need. */
  isAlone: boolean;
  /** Most rows of an expert that go out at a time; Infinity: all at once. */
  batchRows: number;
  /** The workers that cache each expert of the layer. Left out: experts stay at their homes, whichever worker caches them. */
  keepers?: CachingWorkers<string>;
}

/**
 * Compares the router's choice with the announcements (matchExperts), and cuts the rows of each expert into mini-batches (OD-MoE section 3.3), which
 * alternate among the workers that hold the expert. Pure.
 */
export function planLayer(
  placement: Placement,
  layer: number,
  told: AnnouncedLayer,
  activated: ReadonlyMap<number, readonly ActivatedRow[]>,
  { spread, isAlone, batchRows, keepers }: LayerPlanOptions,
): LayerPlan {
  const experts = [...activated.keys()];
  const takers = isAlone ? placement : takersOf(placement, layer, spread === 'all' ? Infinity : experts.length);
  const assignments = matchExperts(takers, layer, firstHolders(told), experts, isAlone ? spread : 'group', keepers);
  const released = [...told.superseded];
  for (const [expert, ids] of told.holders ?? [])
    if (!activated.has(expert)) released.push(...ids.map((id) => [expert, id] as const));
  const batches: ExpertBatch[] = [];
  const foreseen = new Set<number>();
  for (const { expert, workerId, predicted } of assignments) {
    const rows = requirePresent(activated.get(expert), 'an expert that is assigned to a worker was activated.');
    const workers = predicted ? (told.holders?.get(expert) ?? [workerId]) : [workerId];
    if (predicted) foreseen.add(expert);
    const count = Math.ceil(rows.length / batchRows) || 1;
    for (let batch = 0; batch < count; batch++)
      batches.push({
        workerId: workers[batch % workers.length] ?? workerId,
        expert,
        rows: count === 1 ? rows : rows.slice(batch * batchRows, (batch + 1) * batchRows),
        last: batch + workers.length >= count,
      });
    released.push(...workers.slice(count).map((id) => [expert, id] as const));
  }
  // The order in which workers expect the experts, so that a worker with one slot loads each expert once.
  if (told.isWholeLayer || batchRows < Infinity) batches.sort((left, right) => left.expert - right.expert);
  return { batches, releases: expertsByWorker(released), foreseen };
}

function firstHolders({ holders }: AnnouncedLayer): Map<number, string> | null {
  if (holders === null) return null;
  return new Map(
    [...holders].flatMap(([expert, [worker]]) => (worker === undefined ? [] : [[expert, worker] as const])),
  );
}
