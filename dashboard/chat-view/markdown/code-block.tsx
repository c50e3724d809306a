import type { JSX } from 'preact';
import { CopyButton } from '../../elements/copy-button.js';
import type { AnswerInk } from './answer-ink.js';
import { leaf, type MarkdownNode } from './markdown-node.js';
import { SourceText } from './source-text.js';
import { lineParts } from './token-pieces.js';

/** Longer code is laid out in parts of about so many characters: while it grows, only its last part is laid out again. */
const PART_CHARACTERS = 2048;

/** Code with the name of its language and a button that copies it. */
export function CodeBlock({ node, ink }: { node: MarkdownNode; ink: AnswerInk }): JSX.Element {
  const code = node.children.map(({ from, to }) => ink.source.slice(from, to)).join('');
  return (
    <div class="code-block">
      <div class="code-head">
        <span class="small quiet">{node.detail}</span>
        <CopyButton text={code} title="the code" />
      </div>
      <pre tabIndex={0} dir="ltr">
        <code>
          {node.children.map((part) => (
            <CodeText key={part.from} node={part} ink={ink} />
          ))}
        </code>
      </pre>
    </div>
  );
}

function CodeText({ node, ink }: { node: MarkdownNode; ink: AnswerInk }): JSX.Element {
  const parts = node.kind === 'text' ? lineParts(ink.source, node.from, node.to, PART_CHARACTERS) : [];
  if (parts.length < 2) return <SourceText node={node} ink={ink} />;
  return (
    <>
      {parts.map(({ from, to }) => (
        <span key={from} class="code-part">
          <SourceText node={leaf('text', from, to)} ink={ink} />
        </span>
      ))}
    </>
  );
}
