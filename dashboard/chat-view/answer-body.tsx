import type { JSX } from 'preact';
import { useMemo, useRef, useState } from 'preact/hooks';
import { areTokensWhole, shadeOf, wordCount } from './answer-words.js';
import { isRunning, type Answer, type AnswerToken } from './conversation.js';
import type { AnswerInk } from './markdown/answer-ink.js';
import { EMPTY_MARKDOWN, grownMarkdown, type GrowingMarkdown } from './markdown/growing-markdown.js';
import { headingRanks } from './markdown/heading-ranks.js';
import { MarkdownView } from './markdown/markdown-view.js';
import { tokenEnds } from './markdown/token-pieces.js';
import { usePacedValue } from './use-paced-value.js';
import { useShowsTint } from './page-preferences.js';
import { TokenText } from './token-text.js';

/** The reasoning and the text of an answer. */
export function AnswerBody({ answer }: { answer: Answer }): JSX.Element {
  const showsTint = useShowsTint();
  const shown = usePacedValue(answer, isRunning(answer));
  return useMemo(
    () => (
      <>
        {shown.reasoning !== '' && <Reasoning answer={shown} />}
        {shown.text === '' && shown.reasoning === '' && isRunning(shown) ? (
          <p class="turn-text">…</p>
        ) : (
          <AnswerText answer={shown} showsTint={showsTint} />
        )}
      </>
    ),
    [shown, showsTint],
  );
}

function AnswerText({ answer, showsTint }: { answer: Answer; showsTint: boolean }): JSX.Element {
  const { source, blocks, epoch } = useGrownMarkdown(answer.text);
  const { tokens } = answer;
  const shade = useMemo(
    // Without all tokens no place is certain.
    () => (showsTint && areTokensWhole(answer) ? tokenShade(tokens) : null),
    [answer, showsTint],
  );
  const view = <MarkdownView blocks={blocks} ink={{ source, shade, epoch, headingRanks: headingRanks(blocks) }} />;
  return shade === null ? <div class="markdown">{view}</div> : <TokenText tokens={tokens}>{view}</TokenText>;
}

function tokenShade(tokens: readonly AnswerToken[]): NonNullable<AnswerInk['shade']> {
  const degreeOf = (index: number): number => {
    const token = tokens[index];
    return token === undefined ? 0 : shadeOf(token);
  };
  return { ends: tokenEnds(tokens), degreeOf };
}

/** The model's reasoning before its answer, folded. Its Markdown is read only while it is open. */
function Reasoning({ answer: { reasoning, text, state } }: { answer: Answer }): JSX.Element {
  const [isOpen, setOpen] = useState(false);
  const thinks = text === '' && (state === 'waiting' || state === 'streaming');
  const words = wordCount(reasoning);
  return (
    <details class="reasoning" onToggle={(event) => setOpen(event.currentTarget.open)}>
      <summary class="small quiet">{`${thinks ? 'Thinks…' : 'Reasoning:'} ${words} word${words === 1 ? '' : 's'}`}</summary>
      {isOpen && <ReasoningText reasoning={reasoning} />}
    </details>
  );
}

/** Headings of reasoning are no part of the page's outline. */
const NO_RANKS = headingRanks([]);

function ReasoningText({ reasoning }: { reasoning: string }): JSX.Element {
  const { source, blocks, epoch } = useGrownMarkdown(reasoning);
  const ink: AnswerInk = { source, shade: null, epoch, headingRanks: NO_RANKS };
  return (
    <div class="markdown small quiet">
      <MarkdownView blocks={blocks} ink={ink} />
    </div>
  );
}

function useGrownMarkdown(source: string): GrowingMarkdown {
  const read = useRef(EMPTY_MARKDOWN);
  read.current = grownMarkdown(read.current, source);
  return read.current;
}
