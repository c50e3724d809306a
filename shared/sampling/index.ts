export { counterRandom } from './counter-random.js';
export { logprobOf, topLogprobs } from './log-probabilities.js';
export { MAX_SEED, resolveSampling, type SamplingOptions } from './sampling-options.js';
export { sampleToken, samplingDistribution } from './sample-token.js';
