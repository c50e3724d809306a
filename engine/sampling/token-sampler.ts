import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import type { OutputConstraint } from '../output-format/output-constraint.js';
import type { SteppedWork } from '../../shared/base/runtime/work-steps.js';
import type { SamplingOptions } from '../../shared/wire/sampling-options.js';
import { adjustLogits } from './adjust-logits.js';
import { chooseToken } from './choose-token.js';

export interface TokenSamplerSetting {
  sampling: SamplingOptions;
  promptTokens: number;
  /** Most tokens of prompt and answer together. */
  maxPositions: number;
  /** The constraint of sampling.outputFormat; null: any text. */
  constraint: OutputConstraint | null;
}

/**
 * Chooses the tokens of one answer. The choice is a function of the logits, of the prompt and answer so far (`history`), and of the setting.
 * Nothing else is remembered, so a history may be cut back or replaced.
 */
export class TokenSampler {
  constructor(private readonly setting: TokenSamplerSetting) {}

  /**
   * The token after `history`. Yields while the format's tokens are computed. Throws REQUEST_INVALID when bias and format leave no token,
   * MODEL_CORRUPT for unusable logits.
   */
  *sample(logits: Float32Array, history: readonly number[]): SteppedWork<number> {
    const tokenId = yield* this.sampleIfAny(logits, history);
    if (tokenId !== null) return tokenId;
    throw this.noToken(history.length - this.setting.promptTokens);
  }

  /** Like sample; null if bias and format leave no token. */
  *sampleIfAny(logits: Float32Array, history: readonly number[]): SteppedWork<number | null> {
    const { sampling, promptTokens } = this.setting;
    const allowed = yield* this.allowed(history);
    const adjusted = adjustLogits(logits, { tokenIds: history, promptTokens }, sampling, allowed);
    return adjusted === null ? null : chooseToken(adjusted, history.length, sampling);
  }

  /** The answer has everything that its format requires, and only its end may follow. */
  isClosed(history: readonly number[]): boolean {
    const { constraint, promptTokens } = this.setting;
    return constraint !== null && constraint.isClosed(history.slice(promptTokens));
  }

  /** `count`: number of tokens of the answer. */
  private noToken(count: number): OdmoeError {
    const { sampling, constraint } = this.setting;
    const [option, remedy] =
      sampling.logitBias.length === 0 ? ['output_format', 'change it'] : ['logit_bias', 'take some tokens out of it'];
    const formatted = constraint === null ? '' : ' that the output format takes';
    return new OdmoeError(
      'REQUEST_INVALID',
      `after ${count} tokens of the answer no token${formatted} is left by ${option}; ${remedy}`,
      { field: `sampling.${option}` },
    );
  }

  /** Null: all tokens; also if the history has tokens that do not follow the format. */
  private *allowed(history: readonly number[]): SteppedWork<Uint8Array | null> {
    const { constraint, promptTokens, maxPositions } = this.setting;
    if (constraint === null) return null;
    return yield* constraint.allowed(history.slice(promptTokens), maxPositions - history.length);
  }
}
