import type { ExpertId } from '../../model/expert-id.js';
import type { Placement } from '../../wire/messages.js';
import { groupForLayer } from './plan-placement.js';
import { isStrict } from './strict-homes.js';
import { workersForPrefillExpert } from './prefill-workers.js';

/**
 * The experts that main may request of a worker under a placement, as long as no worker is lost. With strict homes: its own experts. Else: all
 * experts of the layers that its group serves (decode), and those of other layers that prefill gives it. Sorted by layer, then expert; empty for
 * a worker that is not placed.
 */
export function neededExperts(placement: Placement, workerId: string): ExpertId[] {
  if (!placement.workers.some(({ id }) => id === workerId)) return [];
  const needed: ExpertId[] = [];
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
