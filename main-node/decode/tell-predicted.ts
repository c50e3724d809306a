import { assignPredictedExperts } from '../../shared/placement/assign-predicted-experts.js';
import { expertsByWorker } from '../../shared/placement/experts-by-worker.js';
import type { PassLayer, Placement, Prediction } from '../../shared/rpc/messages.js';
import type { PlacedWorkers } from '../cluster/placed-workers.js';

/** Whom a prediction of main's own is told. */
export interface PredictionTargets {
  readonly workers: Pick<PlacedWorkers, 'placement' | 'worker'>;
  /** Told what the workers are told. */
  readonly onPrediction: (prediction: Prediction) => void;
}

/** Main predicts experts of a layer itself: whoever the layer's group has for them is told to load them. */
export function tellPredicted(
  { workers, onPrediction }: PredictionTargets,
  placement: Placement,
  { pass, rows, layer }: PassLayer,
  experts: number[],
): void {
  const prediction = { epoch: placement.epoch, pass, rows, layer, workers: [], restart: false };
  onPrediction({ ...prediction, experts });
  for (const [workerId, ofWorker] of expertsByWorker(assignPredictedExperts(placement, layer, experts))) {
    workers.worker(workerId)?.sendPrediction({ ...prediction, experts: ofWorker });
  }
}
