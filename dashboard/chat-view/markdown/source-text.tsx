import type { JSX } from 'preact';
import { useMemo } from 'preact/hooks';
import type { AnswerInk } from './answer-ink.js';
import { leaf, type MarkdownNode } from './markdown-node.js';
import { partBegins, tokenPieces } from './token-pieces.js';

/** A longer text is drawn in parts of so many characters: while it grows, only its last part is drawn again. */
const PART_CHARACTERS = 2048;

interface LeafProps {
  node: MarkdownNode;
  ink: AnswerInk;
}

/** A leaf: text of the source, or what stands in its place. */
export function SourceText({ node, ink }: LeafProps): JSX.Element {
  const { kind, from, to } = node;
  if (kind !== 'text') return <Replacement node={node} ink={ink} />;
  const begins = partBegins(ink.source, from, to, PART_CHARACTERS);
  return (
    <>
      {begins.map((begin, index) => (
        <TextPart key={begin} ink={ink} from={begin} to={begins[index + 1] ?? to} />
      ))}
    </>
  );
}

interface PartedTextProps extends LeafProps {
  /** Divides a range of the source. */
  divide: (source: string, from: number, to: number, least: number) => { from: number; to: number }[];
}

/** A leaf whose long text is laid out in parts: while it grows, only its last part is laid out again. */
export function PartedText({ node, ink, divide }: PartedTextProps): JSX.Element {
  const parts = node.kind === 'text' ? divide(ink.source, node.from, node.to, PART_CHARACTERS) : [];
  if (parts.length < 2) return <SourceText node={node} ink={ink} />;
  return (
    <>
      {parts.map(({ from, to }) => (
        <span key={from} class="text-part">
          <SourceText node={leaf('text', from, to)} ink={ink} />
        </span>
      ))}
    </>
  );
}

function TextPart({ ink, from, to }: { ink: AnswerInk; from: number; to: number }): JSX.Element {
  const { source, shade, epoch } = ink;
  return useMemo(() => {
    if (shade === null) return <>{source.slice(from, to)}</>;
    return (
      <>
        {tokenPieces(shade.ends, from, to).map(({ token, from: begin, to: end }) => (
          <span key={begin} class={tokenClass(ink, token)} data-token={token}>
            {source.slice(begin, end)}
          </span>
        ))}
      </>
    );
    // Within an epoch, the source and its tokens up to `to` stay the same.
  }, [from, to, shade === null, epoch]);
}

/** An element that replaces source text: a decoded entity, a box to tick, the name of a sign. */
function Replacement({ node, ink }: LeafProps): JSX.Element {
  const { kind, from, detail } = node;
  const sign = kind === 'sign' ? 'sign' : '';
  const [piece] = ink.shade === null ? [] : tokenPieces(ink.shade.ends, from, from + 1);
  if (piece === undefined) return <span class={sign}>{detail}</span>;
  return (
    <span class={`${tokenClass(ink, piece.token)} ${sign}`} data-token={piece.token}>
      {detail}
    </span>
  );
}

function tokenClass({ shade }: AnswerInk, index: number): string {
  return `token token-${shade?.degreeOf(index) ?? 0}`;
}
