import type { JSX } from 'preact';
import { useMemo } from 'preact/hooks';
import type { AnswerInk } from './answer-ink.js';
import { CodeBlock } from './code-block.js';
import type { MarkdownNode } from './markdown-node.js';
import { PartedText, SourceText } from './source-text.js';
import { textDirection } from './text-direction.js';
import { wordParts } from './token-pieces.js';

/** Blocks of Markdown as elements. No text is ever read as HTML, so nothing has to be made harmless. */
export function MarkdownView({ blocks, ink }: { blocks: readonly MarkdownNode[]; ink: AnswerInk }): JSX.Element {
  return (
    <>
      {blocks.map((block) => (
        <Block key={block.from} node={block} ink={ink} />
      ))}
    </>
  );
}

interface NodeProps {
  node: MarkdownNode;
  ink: AnswerInk;
}

/** A block that stays the same object is not drawn again. */
function Block({ node, ink }: NodeProps): JSX.Element {
  return useMemo(() => drawnBlock(node, ink), [node, ink.shade === null, ink.epoch]);
}

function drawnBlock(node: MarkdownNode, ink: AnswerInk): JSX.Element {
  const Element = BLOCK_ELEMENTS[node.kind] ?? Paragraph;
  return <Element node={node} ink={ink} />;
}

const BLOCK_ELEMENTS: Partial<Record<MarkdownNode['kind'], (props: NodeProps) => JSX.Element>> = {
  heading: Heading,
  'code-block': CodeBlock,
  'formula-block': FormulaBlock,
  quote: Quote,
  bullets: List,
  numbers: List,
  table: Table,
  rule: () => <hr />,
  raw: RawText,
};

function Paragraph({ node, ink }: NodeProps): JSX.Element {
  return (
    <p dir="auto">
      <Inline nodes={node.children} ink={ink} />
    </p>
  );
}

function RawText({ node, ink }: NodeProps): JSX.Element {
  return (
    <p dir="auto">
      {node.children.map((part) => (
        <PartedText key={part.from} node={part} ink={ink} divide={wordParts} />
      ))}
    </p>
  );
}

function FormulaBlock({ node, ink }: NodeProps): JSX.Element {
  return (
    <p class="formula formula-block" dir="ltr">
      <Inline nodes={node.children} ink={ink} />
    </p>
  );
}

function Quote({ node, ink }: NodeProps): JSX.Element {
  return (
    <blockquote dir={textDirection(ink.source, node.from)}>
      <MarkdownView blocks={node.children} ink={ink} />
    </blockquote>
  );
}

/** A heading within a list or a quote has no rank: it is no part of the outline. */
function Heading({ node, ink }: NodeProps): JSX.Element {
  const rank = ink.headingRanks.get(node);
  const Tag = rank === undefined ? 'p' : (`h${rank}` as 'h2');
  return (
    <Tag class={`heading heading-${node.detail}`} dir="auto">
      <Inline nodes={node.children} ink={ink} />
    </Tag>
  );
}

function List({ node, ink }: NodeProps): JSX.Element {
  const items = node.children.map((item) => <Item key={item.from} node={item} ink={ink} />);
  const direction = textDirection(ink.source, node.from);
  if (node.kind === 'bullets') return <ul dir={direction}>{items}</ul>;
  return (
    <ol dir={direction} start={Number(node.detail)}>
      {items}
    </ol>
  );
}

function Item({ node, ink }: NodeProps): JSX.Element {
  return useMemo(
    () => (
      <li>
        {node.kind === 'item' ? <MarkdownView blocks={node.children} ink={ink} /> : <Block node={node} ink={ink} />}
      </li>
    ),
    [node, ink.shade === null, ink.epoch],
  );
}

function Table({ node, ink }: NodeProps): JSX.Element {
  const [head, ...rows] = node.children;
  return (
    <div class="wide-table" tabIndex={0} role="group" aria-label="Table">
      <table dir={textDirection(ink.source, node.from)}>
        <thead>
          {head !== undefined && (
            <tr>
              {head.children.map((cell) => (
                <th key={cell.from} scope="col" dir="auto" class={sideClass(cell)}>
                  <Inline nodes={cell.children} ink={ink} />
                </th>
              ))}
            </tr>
          )}
        </thead>
        <tbody>
          {rows.map((row) => (
            <Row key={row.from} node={row} ink={ink} />
          ))}
        </tbody>
      </table>
    </div>
  );
}

function Row({ node, ink }: NodeProps): JSX.Element {
  return useMemo(
    () => (
      <tr>
        {/* A table that is too long ends with one row of plain text. */}
        {(node.kind === 'row' ? node.children : [node]).map((cell) => (
          <td key={cell.from} dir="auto" class={sideClass(cell)} colSpan={cell.kind === 'raw' ? 1000 : undefined}>
            <Inline nodes={cell.children} ink={ink} />
          </td>
        ))}
      </tr>
    ),
    [node, ink.shade === null, ink.epoch],
  );
}

function sideClass({ detail }: MarkdownNode): string | undefined {
  return detail === '' ? undefined : `side-${detail}`;
}

function Inline({ nodes, ink }: { nodes: readonly MarkdownNode[]; ink: AnswerInk }): JSX.Element {
  return (
    <>
      {nodes.map((node) => (
        <InlineElement key={node.from} node={node} ink={ink} />
      ))}
    </>
  );
}

function InlineElement({ node, ink }: NodeProps): JSX.Element {
  const wrap = INLINE_ELEMENTS[node.kind];
  if (wrap === undefined) return <SourceText node={node} ink={ink} />;
  return wrap(<Inline nodes={node.children} ink={ink} />, node.detail);
}

const INLINE_ELEMENTS: Partial<Record<MarkdownNode['kind'], (words: JSX.Element, detail: string) => JSX.Element>> = {
  emphasis: (words) => <em>{words}</em>,
  strong: (words) => <strong>{words}</strong>,
  deleted: (words) => <del>{words}</del>,
  code: (words) => <code dir="auto">{words}</code>,
  formula: (words) => (
    <span class="formula" dir="ltr">
      {words}
    </span>
  ),
  special: (words) => <code class="special-token">{words}</code>,
  link: (words, address) => (
    <a href={address} title={address} target="_blank" rel="noopener noreferrer">
      {words}
    </a>
  ),
};
