import { assignPredictedExperts } from '../../shared/decisions/placement/assign-predicted-experts.js';
import { expertsByWorker } from '../../shared/decisions/placement/experts-by-worker.js';
import type { Placement } from '../../shared/wire/messages.js';
import type { PlacedWorkers } from '../cluster/placed-workers.js';
import type { MemberRows } from './pass-member.js';
import { decodePosition, runOf } from './announced-passes.js';
import type { Announcements } from './announcements.js';

/** Experts of a layer that main itself predicts for the rows of one sequence's answer. */
export interface OwnPrediction {
  rows: MemberRows;
  /** Position of the sequence's pass that the experts are for: this pass, or its next one. */
  position: number;
  layer: number;
  experts: number[];
}

/**
 * Main predicts experts itself. For a sequence that runs alone, each expert is announced to the worker that the layer's group has for it, as shadow
 * would do. In a joint pass it is announced together with the predictions for all members.
 */
export class OwnPredictions {
  constructor(
    private readonly workers: Pick<PlacedWorkers, 'placement' | 'worker'>,
    private readonly told: Announcements,
    private readonly isAlone: boolean,
  ) {}

  /** Announces predictions that are all for one layer. */
  tell(placement: Placement, predictions: readonly OwnPrediction[]): void {
    const wishes = predictions.flatMap((prediction) => {
      const { rows, position, layer, experts } = prediction;
      const here = this.predict(placement, prediction);
      return !this.isAlone && here ? [{ layer, experts, run: runOf(rows), position }] : [];
    });
    const [first] = wishes;
    if (first !== undefined) this.told.tell(first.layer, wishes);
  }

  /** Returns true if the prediction is for the rows of this pass. */
  private predict(placement: Placement, { rows, position, layer, experts }: OwnPrediction): boolean {
    const { member, tokenIds, decodeFrom } = rows;
    const isHere = decodePosition(rows) === position;
    const run = { sequence: member.id, position, rows: isHere ? tokenIds.length - decodeFrom : 1 };
    const { epoch } = placement;
    const place = {
      epoch,
      pass: { sequence: member.id, position },
      rows: [run],
      layer,
    };
    const told = { ...place, experts, mainAnnounces: !this.isAlone };
    // The pass runs again, and the layer's router has decided before: no message would release experts that were announced now.
    const isLate = member.predictions.arrive(told) === 'late';
    if (!this.isAlone || isLate) return isHere;
    for (const [worker, ofWorker] of expertsByWorker(assignPredictedExperts(placement, layer, experts)))
      this.workers.worker(worker)?.sendAnnounce({ ...place, experts: ofWorker });
    return isHere;
  }
}
