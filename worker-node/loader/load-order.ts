import type { ExpertOrder } from '../../native/index.js';
import { scheduleBlocks, taskPlaces } from '../../shared/decisions/caching/schedule-blocks.js';
import type { LoadProfile, PartlyLoadedState } from '../../shared/decisions/caching/load-profile.js';

/** Experts beyond these are not put in order, but loaded after them in the order in which they were asked for. */
export const MAX_ORDERED_LOADS = 16;

/** A load that main waits for. */
export interface PendingLoad {
  slot: number;
  state: PartlyLoadedState;
  /** p_n: executing the expert on the rows that wait for it. */
  executeMs: number;
}

/** Where each load's tensors stand when all are wanted together (ZipMoE Algorithm 1), by slot. Of one load alone there is no order. */
export function orderLoads(loads: readonly PendingLoad[], profile: LoadProfile): Map<number, ExpertOrder> {
  if (loads.length < 2) return new Map();
  const ordered = loads.slice(0, MAX_ORDERED_LOADS);
  const tasks = ordered.flatMap(({ slot, state, executeMs }) =>
    Array.from({ length: profile.tensors }, (_, tensor) => ({ expert: slot, tensor, state, executeMs })),
  );
  const orders = new Map<number, ExpertOrder>();
  for (const [slot, places] of taskPlaces(scheduleBlocks(tasks, profile))) {
    const [gate, up, down] = places;
    if (gate !== undefined && up !== undefined && down !== undefined) orders.set(slot, [gate, up, down]);
  }
  return orders;
}
