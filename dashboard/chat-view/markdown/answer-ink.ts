import type { MarkdownNode } from './markdown-node.js';

/** What a text is drawn with: its source, and the shades of its tokens where they are shown. */
export interface AnswerInk {
  source: string;
  /** Null: no shades. Otherwise the places where tokens end, up to the source's end, and the degree of each one's shade, from 0 (none) to 4. */
  shade: { ends: readonly number[]; degreeOf: (token: number) => number } | null;
  headingRanks: ReadonlyMap<MarkdownNode, number>;
  /** Whatever was drawn with another epoch is drawn again, although its places are the same. */
  epoch: number;
}
