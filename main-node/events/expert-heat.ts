import type { ExpertHeat } from '../../shared/wire/cluster-events.js';

/** The share of a count that remains from one report to the next: half of it is left after about a minute. */
const HEAT_LEFT_BETWEEN_LOOKS = 0.945;
const HUNDREDTHS = 100;

/** Counts how often rows chose each expert; the latest choices count most. */
export class ExpertHeatCounts {
  private readonly counts: Float64Array;

  constructor(private readonly shape: { expertLayers: number; experts: number }) {
    this.counts = new Float64Array(shape.expertLayers * shape.experts);
  }

  chosen(layer: number, expert: number, rows: number): void {
    const place = layer * this.shape.experts + expert;
    this.counts[place] = (this.counts[place] ?? 0) + rows;
  }

  /** Lets the counts fade, as time has passed. */
  fade(): void {
    for (let place = 0; place < this.counts.length; place++) {
      this.counts[place] = (this.counts[place] ?? 0) * HEAT_LEFT_BETWEEN_LOOKS;
    }
  }

  view(): ExpertHeat {
    const { expertLayers, experts } = this.shape;
    const counts = Array.from(this.counts, (count) => Math.round(count * HUNDREDTHS) / HUNDREDTHS);
    return { expertLayers, experts, counts };
  }
}
