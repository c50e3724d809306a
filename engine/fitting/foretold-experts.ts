/** Sizes of the maps, and the count of experts that they foretell. Pure. */
import type { ExpertMapsShape } from '../../shared/model/expert-maps.js';
import { mostPredictorBytes } from '../../packs/predictor/predictor-layout.js';
import { highestIds } from '../sampling/highest.js';

/** Layers ahead. */
export const DISTANCES: readonly number[] = [0, 1, 2, 4];

const LEAST_UNITS = 32;
const MOST_UNITS = 256;
/** Most bytes of maps whose units nobody chose. */
const USUAL_BYTES = 8 * 1024 * 1024;

/** The most units, a power of two, with which the maps of a model stay small. */
export function chooseUnits(shape: Omit<ExpertMapsShape, 'units'>): number {
  let units = MOST_UNITS;
  while (units > LEAST_UNITS && mostPredictorBytes({ ...shape, units }) > USUAL_BYTES) units /= 2;
  return units;
}

/**
 * The chosen experts that are among the most probable ones, as many as were chosen: none of a row without choices.
 * @param scores rows x ahead x experts
 * @param chosen rows x expertsPerToken
 */
export function countForetold(
  scores: Float32Array,
  chosen: Int32Array,
  { rows, index, ahead, experts }: { rows: number; index: number; ahead: number; experts: number },
): number {
  const expertsPerToken = chosen.length / rows;
  let count = 0;
  for (let row = 0; row < rows; row += 1) {
    const start = (row * ahead + index) * experts;
    const foretold = highestIds(scores.subarray(start, start + experts), expertsPerToken);
    const own = chosen.subarray(row * expertsPerToken, (row + 1) * expertsPerToken);
    for (const expert of foretold) if (own.includes(expert)) count += 1;
  }
  return count;
}

/** Stands in place of each choice of a row that is damaged: training skips such rows. */
export const NO_CHOICE = -1;

/** The number of rows that have choices. */
export function countKnown(chosen: Int32Array, rows: number): number {
  const expertsPerToken = chosen.length / rows;
  let count = 0;
  for (let row = 0; row < rows; row += 1) if (chosen[row * expertsPerToken] !== NO_CHOICE) count += 1;
  return count;
}
