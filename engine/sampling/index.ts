export { logprobsOf, type TokenLogprobs } from './log-probabilities.js';
export { sampleToken, samplingDistribution } from './sample-token.js';
