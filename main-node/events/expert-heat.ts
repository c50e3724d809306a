import type { ExpertHeat } from '../../shared/wire/cluster-events.js';

/** What is left of a count from one look to the next: half of it after about a minute. */
const KEPT_BETWEEN_LOOKS = 0.945;
const HUNDREDTHS = 100;

/** How often rows chose each expert, the latest counting most. */
export class ExpertHeatCounts {
  private readonly counts: Float64Array;

  constructor(private readonly shape: { expertLayers: number; experts: number }) {
    this.counts = new Float64Array(shape.expertLayers * shape.experts);
  }

  chosen(layer: number, expert: number, rows: number): void {
    const place = layer * this.shape.experts + expert;
    this.counts[place] = (this.counts[place] ?? 0) + rows;
  }

  /** Some time has gone by. */
  fade(): void {
    for (let place = 0; place < this.counts.length; place++) {
      this.counts[place] = (this.counts[place] ?? 0) * KEPT_BETWEEN_LOOKS;
    }
  }

  view(): ExpertHeat {
    const { expertLayers, experts } = this.shape;
    const counts = Array.from(this.counts, (count) => Math.round(count * HUNDREDTHS) / HUNDREDTHS);
    return { expertLayers, experts, counts };
  }
}
