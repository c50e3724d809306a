import type { MarkdownNode } from './markdown-node.js';

/** The page's own heading, above all answers, has rank 1. */
const FIRST_RANK = 2;
const LAST_RANK = 6;

/**
 * The ranks of an answer's outer headings, from 2 to 6: an answer may begin with any level and leave some out, but ranks that are left out
 * make a page's outline hard to follow for those who hear it. A heading's rank depends on the headings before it alone.
 */
export function headingRanks(blocks: readonly MarkdownNode[]): ReadonlyMap<MarkdownNode, number> {
  const ranks = new Map<MarkdownNode, number>();
  let above: number[] = [];
  for (const block of blocks) {
    if (block.kind !== 'heading') continue;
    const level = Number(block.detail);
    above = [...above.filter((other) => other < level), level];
    ranks.set(block, Math.min(LAST_RANK, FIRST_RANK + above.length - 1));
  }
  return ranks;
}
