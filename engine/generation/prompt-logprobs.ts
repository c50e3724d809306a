import type { Pass } from '../../native/index.js';
import { PROMPT_LOGPROBS_TOKENS } from '../../shared/wire/limits.js';
import type { PromptLogprobs, PromptToken } from '../../shared/wire/messages.js';
import { logprobsOf } from '../sampling/log-probabilities.js';

/** Called with the logits after each token of a prompt except the last, in order. An error that it throws ends the prefill. */
export type PromptLogitsObserver = (position: number, logits: Float32Array) => void;

/** Rows whose logits are computed at once: those of a whole pass would take rows x vocabSize x 4 bytes. */
export const OBSERVED_LOGITS_ROWS = 16;
/** Most log-probabilities of one prompt: of all its tokens, and of the most likely tokens beside each. An answer then holds about 60 MB of them. */
export const PROMPT_LOGPROBS_LIMIT = 2 ** 20;

/** Reports the logits of a pass's first `rows` rows; `position`: position of the first row. */
export async function observeLogits(
  pass: Pick<Pass, 'logits'>,
  rows: number,
  position: number,
  observer: PromptLogitsObserver,
): Promise<void> {
  for (let first = 0; first < rows; first += OBSERVED_LOGITS_ROWS) {
    const count = Math.min(OBSERVED_LOGITS_ROWS, rows - first);
    const logits = await pass.logits(Int32Array.from({ length: count }, (_, row) => first + row));
    const vocabSize = logits.length / count;
    for (let row = 0; row < count; row++) {
      observer(position + first + row, logits.subarray(row * vocabSize, (row + 1) * vocabSize));
    }
  }
}

/** Log-probabilities of a prompt's tokens, each given the tokens before it. */
export class PromptLogprobsRecord {
  private readonly tokens: PromptToken[] = [{ logprob: 0, top: [] }];

  /** `count`: number of most likely tokens to list with each token. */
  constructor(
    private readonly promptIds: readonly number[],
    private readonly count: number,
  ) {}

  add(position: number, logits: Float32Array): void {
    const tokenId = this.promptIds[position + 1];
    if (tokenId !== undefined) this.tokens.push(logprobsOf(logits, tokenId, this.count));
  }

  *messages(): Generator<PromptLogprobs, void> {
    for (let first = 0; first < this.tokens.length; first += PROMPT_LOGPROBS_TOKENS) {
      yield { first, tokens: this.tokens.slice(first, first + PROMPT_LOGPROBS_TOKENS) };
    }
  }
}
