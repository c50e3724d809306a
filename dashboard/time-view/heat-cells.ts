import type { ExpertHeat } from '../../shared/cluster-events/cluster-events.js';

export interface HeatCell {
  layer: number;
  expert: number;
}

/** Of what the rows of its layer chose: 0 to 1; 0 where nothing was chosen. */
export function shareOf({ experts, counts }: ExpertHeat, { layer, expert }: HeatCell): number {
  const row = counts.slice(layer * experts, (layer + 1) * experts);
  const total = row.reduce((sum, count) => sum + count, 0);
  return total === 0 ? 0 : (row[expert] ?? 0) / total;
}

/**
 * How strongly each cell is drawn: 0 (never chosen) to 1 (the most of all cells), row by row. The root of the share, so that the many
 * experts that are chosen seldom can be told from those that never are.
 */
export function heatStrengths({ expertLayers, experts, counts }: ExpertHeat): number[] {
  const totals = Array.from({ length: expertLayers }, (_, layer) =>
    counts.slice(layer * experts, (layer + 1) * experts).reduce((sum, count) => sum + count, 0),
  );
  const shares = counts.map((count, index) => {
    const total = totals[Math.floor(index / experts)] ?? 0;
    return total === 0 ? 0 : count / total;
  });
  const most = shares.reduce((highest, share) => Math.max(highest, share), 0);
  return shares.map((share) => (most === 0 ? 0 : Math.sqrt(share / most)));
}

/** The cell at a point, each way 0 to 1 from the top left corner; null: outside. */
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

/** The neighbour that a key of the keyboard leads to, at the edge the cell itself; null: the key leads nowhere. */
export function cellBeside({ expertLayers, experts }: ExpertHeat, cell: HeatCell, key: string): HeatCell | null {
  const step = STEPS[key];
  if (step === undefined) return null;
  return {
    layer: Math.min(expertLayers - 1, Math.max(0, cell.layer + step.layers)),
    expert: Math.min(experts - 1, Math.max(0, cell.expert + step.experts)),
  };
}
