import { OdmoeError } from '../errors/index.js';
import type { Placement } from '../rpc/messages.js';
import { groupForLayer } from './plan-placement.js';

/**
 * Which worker of the layer's group loads which expert. Depends on the set of experts only, so that shadow (which predicts)
 * and main (which knows the gate's choice) come to the same answer without asking each other. No worker gets more than
 * ceil(experts / group size). Each visit of the group starts where the previous one stopped dealing, so that in a group with
 * spares every worker rests equally long between two loads.
 */
export function assignPredictedExperts(
  placement: Placement,
  layer: number,
  position: number,
  experts: readonly number[],
): Map<number, string> {
  const group = groupForLayer(placement, layer);
  if (group.length === 0 && experts.length > 0) {
    throw new OdmoeError('NO_WORKERS', `Placement epoch ${placement.epoch} has no worker for layer ${layer}.`);
  }
  const start = groupVisit(placement, layer, position) * placement.expertsPerToken;
  const assignment = new Map<number, string>();
  for (const expert of [...new Set(experts)].sort((left, right) => left - right)) {
    assignment.set(expert, group[(start + assignment.size) % group.length] as string);
  }
  return assignment;
}

/** How often the layer's group has had a turn before this layer of this position. */
function groupVisit(placement: Placement, layer: number, position: number): number {
  const groups = Math.max(1, placement.groups.length);
  const visitsPerPosition = Math.ceil((placement.layers - (layer % groups)) / groups);
  return position * visitsPerPosition + Math.floor(layer / groups);
}
