import { assignmentOf } from '../../shared/decisions/placement/assignment-of.js';
import type { Placement, Predict } from '../../shared/wire/messages.js';

/**
 * Maps each expert to the worker to which the prediction has announced it. Null: the prediction announces nothing under this placement. It is for
 * main alone, it was made under another placement, whose predictions the workers have dropped, or it names workers that are not in the placement.
 */
export function announcedByPrediction(placement: Placement, prediction: Predict | null): Map<number, string> | null {
  if (prediction?.epoch !== placement.epoch || prediction.mainAnnounces === true) return null;
  if (prediction.workers?.some((place) => place >= placement.workers.length) === true) return null;
  return assignmentOf(placement, prediction);
}
