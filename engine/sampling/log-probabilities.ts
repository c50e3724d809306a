import { logSumExp } from '../../native/index.js';
import type { TokenLogprob } from '../../shared/wire/messages.js';
import { highestIds } from './highest.js';
import { requireUsableLogits } from './usable-logits.js';

export interface TokenLogprobs {
  /** Of the token that was chosen. */
  logprob: number;
  /** The most likely tokens, most likely first, equal ones by rising id. */
  top: TokenLogprob[];
}

/**
 * Log-probabilities under softmax(logits) by the one arithmetic: of `tokenId` and of the `count` most likely tokens. Nothing is computed
 * where `count` is 0: nobody asked for them then. Throws INTERNAL for logits without a meaning.
 */
export function logprobsOf(logits: Float32Array, tokenId: number, count: number): TokenLogprobs {
  if (count === 0) return { logprob: 0, top: [] };
  const normalizer = logSumExp(logits, requireUsableLogits(logits));
  const of = (id: number): number => (logits[id] ?? Number.NaN) - normalizer;
  return { logprob: of(tokenId), top: highestIds(logits, count).map((id) => ({ tokenId: id, logprob: of(id) })) };
}
