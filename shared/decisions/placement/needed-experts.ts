import type { Placement } from '../../wire/messages.js';
import { groupForLayer } from './plan-placement.js';
import { isStrict } from './strict-homes.js';
import { workersForPrefillExpert } from './prefill-workers.js';

export interface ExpertPlace {
  layer: number;
  expert: number;
}

/**
 * The experts that a worker may be asked for under a placement while nobody is lost: its own where experts have workers of their own; else
 * all of the layers that its group serves (decode), and those of the other layers that prefill gives it. By layer, then expert; none for a worker that is not placed.
 */
export function neededExperts(placement: Placement, workerId: string): ExpertPlace[] {
  if (!placement.workers.some(({ id }) => id === workerId)) return [];
  const needed: ExpertPlace[] = [];
  for (let layer = 0; layer < placement.layers; layer += 1) {
    const decodes = !isStrict(placement) && groupForLayer(placement, layer).includes(workerId);
    for (let expert = 0; expert < placement.experts; expert += 1) {
      if (decodes || workersForPrefillExpert(placement, layer, expert).includes(workerId)) {
        needed.push({ layer, expert });
      }
    }
  }
  return needed;
}
