import type { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import type { PromptLogitsObserver } from './prompt-logprobs.js';

/**
 * One sequence of a model, wherever its parts run: in this process (createLocalRunner) or over a cluster (main). Calls follow one
 * another: prefill once, then decode per token, then end.
 */
export interface SequenceRunner {
  /** Runs the prompt; logits of its last token, one per vocabulary entry. `onLogits`: wants those of the other tokens, too. */
  prefill(tokenIds: readonly number[], onLogits?: PromptLogitsObserver): Promise<Float32Array>;
  /** Runs the next token of the sequence; its logits. */
  decode(tokenId: number): Promise<Float32Array>;
  /** The answer has failed with this: what was run for it is not to be used again. */
  failed?(error: OdmoeError): void;
  /** Frees the sequence, also after an error. Idempotent. */
  end(): Promise<void>;
}
