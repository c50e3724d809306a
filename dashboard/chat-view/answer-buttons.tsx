import type { JSX } from 'preact';
import { askQuestionAgain, goOnWith } from './chat-store.js';
import type { Answer, Question } from './conversation.js';
import { CopyText } from './copy-text.js';
import { canGoOn } from './cut-answers.js';

export function AnswerButtons({ answer, question }: { answer: Answer; question: Question | null }): JSX.Element {
  return (
    <>
      {canGoOn(answer) && (
        <button
          type="button"
          class="button turn-button"
          title="Asks the same again, with the same seed: where the fingerprint is the same, too, the answer goes on from here"
          onClick={() => goOnWith(answer)}
        >
          Go on
        </button>
      )}
      {answer.text !== '' && <CopyText label="Copy" text={() => answer.text} />}
      {question !== null && (
        <button
          type="button"
          class="button turn-button"
          title="With the same seed and settings: where the fingerprint is the same, too, so is the answer"
          onClick={() => askQuestionAgain(question.id, question.text, answer.isImported ? null : answer.settings)}
        >
          Ask again
        </button>
      )}
    </>
  );
}
