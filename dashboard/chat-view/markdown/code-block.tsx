import type { JSX } from 'preact';
import { CopyButton } from '../../elements/copy-button.js';
import type { AnswerInk } from './answer-ink.js';
import type { MarkdownNode } from './markdown-node.js';
import { PartedText } from './source-text.js';
import { lineParts } from './token-pieces.js';

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
            <PartedText key={part.from} node={part} ink={ink} divide={lineParts} />
          ))}
        </code>
      </pre>
    </div>
  );
}
