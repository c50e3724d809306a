import { OdmoeError } from '../../base/errors/odmoe-error.js';
import { requirePresent } from '../../base/errors/assert-invariant.js';
import type { Placement, Predict } from '../../wire/messages.js';
import { assignPredictedExperts } from './assign-predicted-experts.js';

/**
 * expert -> id of the worker that a prediction asks to load it. If the prediction has places, they name the worker; else the layer's group
 * assigns it.
 * @throws PROTOCOL_VIOLATION if the number of places differs from that of the experts, or a place is not in the placement
 */
export function assignmentOf(
  placement: Placement,
  { layer, experts, workers = [] }: Pick<Predict, 'layer' | 'experts' | 'workers'>,
): Map<number, string> {
  if (workers.length === 0) return assignPredictedExperts(placement, layer, experts);
  const ids = workers.flatMap((place) => placement.workers[place]?.id ?? []);
  if (workers.length !== experts.length || ids.length !== experts.length) {
    throw new OdmoeError(
      'PROTOCOL_VIOLATION',
      `a prediction of ${experts.length} experts of layer ${layer} names workers ${workers.join(', ')} of the ` +
        `${placement.workers.length} in placement epoch ${placement.epoch}: one place is needed for each expert`,
    );
  }
  return new Map(ids.map((id, index) => [requirePresent(experts[index], 'each worker has an expert.'), id]));
}
