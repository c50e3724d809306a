import type { TokenLogprob } from '../rpc/messages.js';
import { requireUsableLogits } from './usable-logits.js';
import { highestIds } from './highest.js';

/** log(sum(exp(logits))) in double precision. */
function logSumExp(logits: Float32Array): number {
  const highest = requireUsableLogits(logits);
  let sum = 0;
  for (const logit of logits) sum += Math.exp(logit - highest);
  return highest + Math.log(sum);
}

/** Log-probability of one token under softmax(logits), computed in double precision. */
export function logprobOf(logits: Float32Array, tokenId: number): number {
  return (logits[tokenId] ?? Number.NaN) - logSumExp(logits);
}

/** The `count` most likely tokens with their log-probabilities, most likely first, equal ones by rising id. */
export function topLogprobs(logits: Float32Array, count: number): TokenLogprob[] {
  if (count === 0) return [];
  const normalizer = logSumExp(logits);
  return highestIds(logits, count).map((tokenId) => ({ tokenId, logprob: (logits[tokenId] ?? 0) - normalizer }));
}
