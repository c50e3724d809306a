import type { ExpertHeat } from '../../shared/wire/cluster-events.js';

export interface HeatCell {
  layer: number;
  expert: number;
}

/** The expert's share of its layer's choices: 0 to 1; 0 if nothing was chosen. */
export function shareOf({ experts, counts }: ExpertHeat, { layer, expert }: HeatCell): number {
  const row = counts.slice(layer * experts, (layer + 1) * experts);
  const total = row.reduce((sum, count) => sum + count, 0);
  return total === 0 ? 0 : (row[expert] ?? 0) / total;
}

/**
 * The strength of each cell's colour, row by row: 0 (never chosen) to 1 (all choices of its layer, with very many experts). An even share has
 * strength 0.5 for any number of experts; twice that share has 0.74, half of it 0.26.
 */
export function heatStrengths({ expertLayers, experts, counts }: ExpertHeat): number[] {
  const totals = Array.from({ length: expertLayers }, (_, layer) =>
    counts.slice(layer * experts, (layer + 1) * experts).reduce((sum, count) => sum + count, 0),
  );
  return counts.map((count, index) => {
    const total = totals[Math.floor(index / experts)] ?? 0;
    const timesEven = total === 0 ? 0 : (count * experts) / total;
    const weight = timesEven * Math.sqrt(timesEven);
    return weight / (1 + weight);
  });
}

/** The cell at a point; both coordinates go from 0 to 1 from the top left corner; null: outside. */
export function cellAt({ expertLayers, experts }: ExpertHeat, right: number, down: number): HeatCell | null {
  if (right < 0 || right >= 1 || down < 0 || down >= 1) return null;
  return { layer: Math.floor(down * expertLayers), expert: Math.floor(right * experts) };
}

const STEPS: Record<string, { layers: number; experts: number }> = {
  ArrowUp: { layers: -1, experts: 0 },
  ArrowDown: { layers: 1, experts: 0 },
  ArrowLeft: { layers: 0, experts: -1 },
  ArrowRight: { layers: 0, experts: 1 },
};

/** The neighbouring cell for an arrow key, or the cell itself at the edge; null: the key is no arrow key. */
export function cellBeside({ expertLayers, experts }: ExpertHeat, cell: HeatCell, key: string): HeatCell | null {
  const step = STEPS[key];
  if (step === undefined) return null;
  return {
    layer: Math.min(expertLayers - 1, Math.max(0, cell.layer + step.layers)),
    expert: Math.min(experts - 1, Math.max(0, cell.expert + step.experts)),
  };
}
