export { counterRandom } from './counter-random.js';
export {
  describeRange,
  isInRange,
  MAX_SEED,
  PROBABILITY_RANGE,
  REPETITION_PENALTY_RANGE,
  resolveSampling,
  SEED_RANGE,
  TEMPERATURE_RANGE,
  TOP_K_RANGE,
  type NumberRange,
  type SamplingOptions,
} from './sampling-options.js';
