import { NEVER_CHOSEN_BIAS, type SamplingOptions } from '../../shared/wire/sampling-options.js';
import type { LogitBias } from '../../shared/wire/messages.js';
import { requireUsableLogits } from './usable-logits.js';

/** The tokens of the prompt and of the answer so far. */
export interface TokenHistory {
  /** Tokens of both, in order. */
  tokenIds: readonly number[];
  promptTokens: number;
}

/**
 * The logits for choosing a token. In this order it applies: repetition penalty over prompt and answer, frequency and presence penalty over the
 * answer, logit bias, and the tokens that the answer's format allows (null: all). Each step's results are FP32. The given logits are not
 * changed; they are returned if nothing changes them. Null: no token is left. Throws MODEL_CORRUPT for unusable logits.
 */
export function adjustLogits(
  logits: Float32Array,
  { tokenIds, promptTokens }: TokenHistory,
  options: SamplingOptions,
  allowed: Uint8Array | null,
): Float32Array | null {
  if (isNeutral(options) && allowed === null) return logits;
  requireUsableLogits(logits);
  const adjusted = logits.slice();
  penalizeRepetition(adjusted, tokenIds, options.repetitionPenalty);
  penalizeAnswer(adjusted, tokenIds.slice(promptTokens), options);
  addBias(adjusted, options.logitBias);
  if (allowed !== null) ruleOut(adjusted, allowed);
  return adjusted.some((logit) => logit > -Infinity) ? adjusted : null;
}

function isNeutral({ repetitionPenalty, presencePenalty, frequencyPenalty, logitBias }: SamplingOptions): boolean {
  return repetitionPenalty === 1 && presencePenalty === 0 && frequencyPenalty === 0 && logitBias.length === 0;
}

/** Changes the logits of tokens that occurred before, once each: positive ones are divided by the penalty, negative ones multiplied (CTRL, section 4.1). */
function penalizeRepetition(logits: Float32Array, history: readonly number[], penalty: number): void {
  if (penalty === 1) return;
  for (const id of new Set(history)) {
    const logit = logits[id];
    if (logit !== undefined) logits[id] = logit < 0 ? logit * penalty : logit / penalty;
  }
}

/** Subtracts from each token of the answer presencePenalty once, and frequencyPenalty for each occurrence (OpenAI's API reference). */
function penalizeAnswer(
  logits: Float32Array,
  answer: readonly number[],
  { presencePenalty, frequencyPenalty }: SamplingOptions,
): void {
  if (presencePenalty === 0 && frequencyPenalty === 0) return;
  const counts = new Map<number, number>();
  for (const id of answer) counts.set(id, (counts.get(id) ?? 0) + 1);
  for (const [id, count] of counts) {
    const logit = logits[id];
    if (logit !== undefined) logits[id] = logit - (count * frequencyPenalty + presencePenalty);
  }
}

function ruleOut(logits: Float32Array, allowed: Uint8Array): void {
  for (let id = 0; id < logits.length; id++) if (allowed[id] !== 1) logits[id] = -Infinity;
}

function addBias(logits: Float32Array, biases: readonly LogitBias[]): void {
  for (const { tokenId, bias } of biases) {
    const logit = logits[tokenId];
    if (logit !== undefined) logits[tokenId] = bias === NEVER_CHOSEN_BIAS ? -Infinity : logit + bias;
  }
}
