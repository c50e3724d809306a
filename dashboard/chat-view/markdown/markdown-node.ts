/** Kinds whose nodes hold words. */
export type InlineKind =
  | 'text'
  /** `detail` stands in the text's place. */
  | 'replaced'
  /** A character that has no form of its own, or turns the direction of others; `detail` is its name, for example "U+202E". */
  | 'sign'
  | 'emphasis'
  | 'strong'
  | 'deleted'
  | 'code'
  | 'formula'
  | 'special'
  /** `detail`: the address. */
  | 'link';

export type BlockKind =
  | 'paragraph'
  /** `detail`: its level, from 1 to 6. */
  | 'heading'
  /** `detail`: its language; empty: none. */
  | 'code-block'
  | 'formula-block'
  | 'quote'
  | 'bullets'
  /** `detail`: its first number. */
  | 'numbers'
  | 'item'
  | 'table'
  | 'row'
  /** `detail`: "left", "center" or "right"; empty: not said. */
  | 'cell'
  | 'rule'
  /** Text that is not read as Markdown. */
  | 'raw';

/** A piece of Markdown. It knows its place in the source, so that what is known of the source can be shown on it. */
export interface MarkdownNode {
  kind: InlineKind | BlockKind;
  /** Places in the source, in UTF-16 units. Marks of Markdown and indents belong to no leaf. */
  from: number;
  to: number;
  detail: string;
  children: readonly MarkdownNode[];
}

const NONE: readonly MarkdownNode[] = [];

export function leaf(kind: MarkdownNode['kind'], from: number, to: number, detail = ''): MarkdownNode {
  return { kind, from, to, detail, children: NONE };
}

export function branch(
  kind: MarkdownNode['kind'],
  { from, to }: { from: number; to: number },
  children: readonly MarkdownNode[],
  detail = '',
): MarkdownNode {
  return { kind, from, to, detail, children };
}

/**
 * Returns `after`, with each part that equals a part of `before` replaced by that one, so that the page does not draw it again. Both were
 * read from the same source, which only became longer.
 */
export function withShared(before: MarkdownNode | undefined, after: MarkdownNode): MarkdownNode {
  if (before?.kind !== after.kind || before.from !== after.from || before.detail !== after.detail) return after;
  const children = after.children.map((child, index) => withShared(before.children[index], child));
  const isSame =
    before.to === after.to &&
    before.children.length === children.length &&
    children.every((child, index) => child === before.children[index]);
  return isSame ? before : { ...after, children };
}
