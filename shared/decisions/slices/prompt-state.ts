/** What a sequence remembers of its prompt before its logical cache begins: how often experts were chosen, and the ranges of logits. */
import { PromptChoices } from './warm-cache.js';

/** A state before some row. Its layers are filled in one after the other. */
export interface PromptState {
  readonly choices: PromptChoices;
  /** Each layer has the sum of the ranges of its logits, then their count. */
  readonly ranges: Float64Array;
}

export function emptyPromptState({ layers, experts }: { layers: number; experts: number }): PromptState {
  return { choices: PromptChoices.none(layers * experts), ranges: new Float64Array(2 * layers) };
}
