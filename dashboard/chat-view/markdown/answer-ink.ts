import type { AnswerToken } from '../conversation.js';

/** What a text is drawn with: its source, and its tokens where their shades are shown. */
export interface AnswerInk {
  source: string;
  /** Null: no shades. Otherwise the tokens are the whole source. */
  shade: { tokens: readonly AnswerToken[]; ends: readonly number[] } | null;
  /** Whatever was drawn with another epoch is drawn again, although its places are the same. */
  epoch: number;
}
