import type { RecallView } from '../../shared/wire/cluster-events.js';

export interface RecallPositions {
  /** Positions in the answer, from 1. A point of several positions has their middle. */
  positions: number[];
  /** Recalls from 0 to 1; null: no expert was activated there. */
  recalls: (number | null)[];
}

/** Most points. In a longer answer, neighbours are joined, so that the line does not become a band. */
const MOST_POINTS = 128;

/** OD-MoE's equation 2, by position in the answer. */
export function recallByPosition({ correct, activated }: RecallView): RecallPositions {
  const width = Math.max(1, Math.ceil(activated.length / MOST_POINTS));
  const begins = Array.from({ length: Math.ceil(activated.length / width) }, (_, index) => index * width);
  const sum = (values: readonly number[], begin: number): number =>
    values.slice(begin, begin + width).reduce((total, value) => total + value, 0);
  return {
    positions: begins.map((begin) => begin + 1 + (Math.min(width, activated.length - begin) - 1) / 2),
    recalls: begins.map((begin) => {
      const all = sum(activated, begin);
      return all === 0 ? null : sum(correct, begin) / all;
    }),
  };
}
