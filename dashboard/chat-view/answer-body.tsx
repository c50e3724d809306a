import type { JSX } from 'preact';
import { areTokensWhole } from './answer-words.js';
import { isRunning, type Answer } from './conversation.js';
import { TokenText } from './token-text.js';

/** The reasoning and the text of an answer. */
export function AnswerBody({ answer }: { answer: Answer }): JSX.Element {
  return (
    <>
      {answer.reasoning !== '' && (
        <details class="reasoning">
          <summary class="small quiet">Reasoning</summary>
          <p class="turn-text small quiet">{answer.reasoning}</p>
        </details>
      )}
      {areTokensWhole(answer) ? (
        <TokenText tokens={answer.tokens} />
      ) : (
        <p class="turn-text">{answer.text === '' && isRunning(answer) ? '…' : answer.text}</p>
      )}
    </>
  );
}
