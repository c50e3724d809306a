import { logSumExp } from '../../native/index.js';
import type { TokenLogprob } from '../../shared/wire/messages.js';
import { highestIds } from './highest.js';
import { requireUsableLogits } from './usable-logits.js';

export interface TokenLogprobs {
  /** Log-probability of the chosen token. */
  logprob: number;
  /** The most likely tokens, the most likely first, equal ones by rising id. */
  top: TokenLogprob[];
}

/**
 * Log-probabilities under softmax(logits), with the project's one arithmetic: of `tokenId` and of the `count` most likely tokens. If `count` is
 * 0, the request wants none and nothing is computed. Throws INTERNAL for unusable logits.
 */
export function logprobsOf(logits: Float32Array, tokenId: number, count: number): TokenLogprobs {
  if (count === 0) return { logprob: 0, top: [] };
  const normalizer = logSumExp(logits, requireUsableLogits(logits));
  const of = (id: number): number => (logits[id] ?? Number.NaN) - normalizer;
  return { logprob: of(tokenId), top: highestIds(logits, count).map((id) => ({ tokenId: id, logprob: of(id) })) };
}
