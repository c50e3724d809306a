import { branch, leaf, withShared, type MarkdownNode } from './markdown-node.js';
import { readMarkdown } from './read-blocks.js';

/** What comes behind this place is plain text, so that an endless answer does not stop the page. */
const MOST_CHARACTERS = 400_000;

/** A text of Markdown that becomes longer. */
export interface GrowingMarkdown {
  source: string;
  blocks: readonly MarkdownNode[];
  /** The number of blocks that no longer text can change. */
  closedBlocks: number;
  /** The place where the first block begins that longer text can change. */
  openFrom: number;
  /** Is another one where the source is no longer version of the one before. */
  epoch: number;
}

export const EMPTY_MARKDOWN: GrowingMarkdown = { source: '', blocks: [], closedBlocks: 0, openFrom: 0, epoch: 0 };

/**
 * Reads a source. Where it begins with the source of `before`, only the last block of that is read again: the blocks before it are the same
 * objects, and so are the parts of the last block that stay the same.
 */
export function grownMarkdown(before: GrowingMarkdown, source: string): GrowingMarkdown {
  if (source === before.source) return before;
  const base = source.startsWith(before.source) ? before : { ...EMPTY_MARKDOWN, epoch: before.epoch + 1 };
  const closed = base.blocks.slice(0, base.closedBlocks);
  const text = source.slice(base.openFrom, MOST_CHARACTERS);
  const open = readMarkdown(text, base.openFrom).map((block, index) =>
    withShared(base.blocks[closed.length + index], block),
  );
  const blocks = [...closed, ...open];
  if (source.length > MOST_CHARACTERS) blocks.push(rest(source.length));
  return { source, blocks, epoch: base.epoch, ...openEnd(source.slice(0, MOST_CHARACTERS), blocks) };
}

function rest(length: number): MarkdownNode {
  const place = { from: MOST_CHARACTERS, to: length };
  return branch('raw', place, [leaf('text', place.from, place.to)]);
}

/**
 * Finds what longer text can change. The last line may be incomplete: its rest decides which block it begins or continues. Of the blocks
 * that begin before it, the last one may go on.
 */
function openEnd(source: string, blocks: readonly MarkdownNode[]): { closedBlocks: number; openFrom: number } {
  const lastLine = source.lastIndexOf('\n') + 1;
  const closedBlocks = Math.max(
    0,
    blocks.findLastIndex(({ from }) => from < lastLine),
  );
  const from = blocks[closedBlocks]?.from ?? 0;
  // A block begins behind its indent, and the indent matters.
  return { closedBlocks, openFrom: blocks.length === 0 ? 0 : source.lastIndexOf('\n', from - 1) + 1 };
}
