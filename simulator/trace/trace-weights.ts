import { counterRandom } from '../../shared/base/arithmetic/counter-random.js';
import { renormalizedWeights } from '../../shared/decisions/slices/critical-executions.js';
import { measuredThresholds, type MeasuredTheta } from '../../shared/decisions/slices/plan-readings.js';
import type { TracedRow } from './trace-model.js';

const SEED = 1;
/** Rows on which thresholds are measured. */
const MEASURED_ROWS = 512;
/** Positions of a prompt, and layers of a position, have numbers of their own below these. */
const MOST_POSITIONS = 1_000_000;
const MOST_LAYERS = 1000;
/** A wrong draft has the numbers of a prompt that does not exist. */
const OFF_PATH_PROMPT_OFFSET = 1_000_000;

/**
 * The weights that a traced router gives to these experts of a row. A trace has none: each expert of each row and layer draws one, evenly from
 * (0, 1], the same for main and shadow, and the weights of a row are scaled to the sum 1.
 */
export function traceWeights(
  { prompt, position, onPath }: TracedRow,
  layer: number,
  experts: readonly number[],
): Float32Array {
  const sequence = onPath ? prompt : prompt + OFF_PATH_PROMPT_OFFSET;
  const place = (sequence * MOST_POSITIONS + position) * MOST_LAYERS + layer;
  const stream = SEED + place;
  const drawn = Float32Array.from(experts, (expert) => 1 - counterRandom(stream, expert));
  return renormalizedWeights(drawn, experts.length);
}

/** Thresholds by which shares of the executions of traced rows are critical; none for one expert a token. */
export function traceThresholds(expertsPerToken: number): MeasuredTheta[] {
  const experts = Array.from({ length: expertsPerToken }, (_, rank) => rank);
  const weights = Array.from({ length: MEASURED_ROWS }, (_, position) => [
    ...traceWeights({ prompt: 0, position, onPath: true }, 0, experts),
  ]);
  return measuredThresholds(Float32Array.from(weights.flat()));
}
