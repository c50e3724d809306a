import type { ANSWER_PARSER } from './markdown-syntax.js';

/** A place in the parser's tree. */
export type SyntaxCursor = ReturnType<ReturnType<typeof ANSWER_PARSER.parse>['cursor']>;

/** Most nodes of one outer block; what comes after them is plain text, so that no answer fills the page with elements. */
const MOST_NODES = 20_000;

/** What the readers of blocks and texts share: the text that the tree was made of, and its place in the source. */
export class SyntaxReading {
  private nodes = 0;

  constructor(
    readonly text: string,
    /** The place of `text` in the source. */
    readonly offset: number,
  ) {}

  startBlock(): void {
    this.nodes = 0;
  }

  /** Counts a node, and tells whether its block has room for it. */
  hasRoom(): boolean {
    this.nodes += 1;
    return this.nodes <= MOST_NODES;
  }

  textOf({ from, to }: { from: number; to: number }): string {
    return this.text.slice(from, to);
  }

  /** The place in the source. */
  placeOf({ from, to }: { from: number; to: number }): { from: number; to: number } {
    return { from: from + this.offset, to: to + this.offset };
  }
}

/** Calls `visit` at each child of the cursor's node, until it returns false. The cursor is at the same node afterwards. */
export function eachChild(cursor: SyntaxCursor, visit: () => boolean | undefined): void {
  if (!cursor.firstChild()) return;
  let goesOn = true;
  while (goesOn) goesOn = visit() !== false && cursor.nextSibling();
  cursor.parent();
}
