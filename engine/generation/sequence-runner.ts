import type { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import type { BudgetReport } from '../../shared/decisions/slices/miss-budget.js';
import type { PromptLogitsObserver } from './prompt-logprobs.js';

/**
 * One sequence of a model, run in this process (createLocalRunner) or over a cluster (main). Call prefill once, then decode per token, then
 * end, one after the other.
 */
export interface SequenceRunner {
  /** Runs the prompt; returns the logits of its last token, one per vocabulary entry. `onLogits`: gets those of the other tokens. */
  prefill(tokenIds: readonly number[], onLogits?: PromptLogitsObserver): Promise<Float32Array>;
  /** Runs the next token of the sequence; returns its logits. */
  decode(tokenId: number): Promise<Float32Array>;
  /** The state of the constraint on misses of its logical cache; null, or left out: it has none. */
  logicalCache?(): BudgetReport | null;
  /** The answer has failed with this error: its rows must not be used again. */
  failed?(error: OdmoeError): void;
  /** Frees the sequence, also after an error. Idempotent. */
  end(): Promise<void>;
}
