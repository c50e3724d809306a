import type { JSX } from 'preact';
import { AnswerBody } from './answer-body.js';
import { AnswerButtons } from './answer-buttons.js';
import { usageWords } from './answer-words.js';
import { isRunning, type Answer, type Question } from './conversation.js';

export function AnswerTurn({ answer, question }: { answer: Answer; question: Question | null }): JSX.Element {
  const runs = isRunning(answer);
  return (
    <li class="turn turn-answer" data-state={answer.state} aria-busy={runs}>
      <AnswerBody answer={answer} />
      {answer.progress !== '' && <p class="small quiet">{answer.progress}</p>}
      {answer.error !== '' && (
        <p class="answer-error" role="alert">
          {answer.error}
        </p>
      )}
      {answer.state === 'stopped' && <p class="small quiet">Stopped.</p>}
      {!runs && (
        <div class="answer-foot">
          <p class="small quiet">{usageWords(answer).join(' · ')}</p>
          <AnswerButtons answer={answer} question={question} />
        </div>
      )}
    </li>
  );
}
