import type { DraftCostMeter } from '../../main-node/decode/draft-costs.js';
import { SequenceDrafting, type DraftingOptions } from '../../main-node/decode/sequence-drafting.js';
import type { VirtualClock } from './virtual-clock.js';

const nobodyWaits = (): never => {
  throw new Error('the simulator waits on its own clock');
};

/** The daemon's drafting of one sequence, but that it waits on the virtual clock; shadow is never lost there. */
export class SimulatedDrafting extends SequenceDrafting {
  constructor(
    options: DraftingOptions,
    meter: DraftCostMeter,
    rowsThatPay: () => number,
    private readonly clock: VirtualClock,
  ) {
    super(options, meter, rowsThatPay, { nowMs: () => clock.nowMs, after: nobodyWaits });
  }

  /** `begin`: the drafts of a pass at `position` are there, or are not to be expected. */
  waitThen(position: number, rows: number, begin: () => void): void {
    let waits = true;
    const goOn = (): void => {
      if (!waits) return;
      const limitMs = this.continueWait(true);
      if (limitMs !== null) return this.clock.after(limitMs, goOn);
      waits = false;
      begin();
    };
    this.beginWait(position, rows, goOn);
    goOn();
  }
}
