import { assignmentOf } from '../../shared/decisions/placement/assignment-of.js';
import type { Placement, Predict } from '../../shared/wire/messages.js';

/**
 * expert -> worker that the prediction has told to load it. Null: it tells nobody anything under this placement, because it is for main
 * alone, was made under another placement, whose predictions the workers have forgotten, or names workers that the placement has not.
 */
export function announcedByPrediction(placement: Placement, prediction: Predict | null): Map<number, string> | null {
  if (prediction?.epoch !== placement.epoch || prediction.mainAnnounces === true) return null;
  if (prediction.workers?.some((place) => place >= placement.workers.length) === true) return null;
  return assignmentOf(placement, prediction);
}
